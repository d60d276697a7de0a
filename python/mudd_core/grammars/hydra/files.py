"""YAML files of a Hydra config folder: read as OmegaConf reads them, with the package of their header."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import read_text
from mudd_core.config.suggest import nearest
from mudd_core.grammars.hydra.values import Node

_HEADER = re.compile(r"#\s*@package\s+([\w.]+)\s*$")
_DEEPEST = 64
FLOAT_TAG = "tag:yaml.org,2002:float"
FLOAT_TEXT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*(?:[eE][-+]?[0-9]+)"
    r"|\.[0-9_]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class _Loader(yaml.SafeLoader):
    """YAML whose 1e-5 is a number and whose dates are strings; a key given twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen = set[str]()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key_node.value}' is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(FLOAT_TAG, FLOAT_TEXT, list("-+0123456789."))
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, found) for tag, found in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in _Loader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class HydraFile:
    """A config of a group, or the root: its defaults list, its content, and where that is put (None: its group)."""

    path: Path
    defaults: list[Node]
    content: dict[str, Node] = field(default_factory=dict)
    package: str | None = None


def read_yaml(path: Path) -> tuple[dict[str, Node], str]:
    """The mapping in a file, and its text; FormatError where it is no YAML, or no mapping."""
    try:
        text = read_text(path)
        found = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = str(getattr(error, "problem", None) or error)
        place = f" (line {mark.line + 1})" if mark else ""
        raise FormatError(str(path), mark.index if mark else 0, f"{reason}{place}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"[hydra] {path}: {error}") from None
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise FormatError(str(path), 0, f"expected keys with values, got {type(found).__name__}")
    return {str(key): _node(value, path, 1) for key, value in found.items()}, text


def _node(value: Any, path: Path, depth: int) -> Node:
    if depth > _DEEPEST:
        raise FormatError(str(path), 0, f"more than {_DEEPEST} levels")
    if isinstance(value, dict):
        return {str(key): _node(child, path, depth + 1) for key, child in value.items()}
    if isinstance(value, list):
        return [_node(child, path, depth + 1) for child in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise FormatError(
        str(path), 0, f"expected numbers, strings, lists and objects, got {type(value).__name__}"
    )


def read_file(path: Path) -> HydraFile:
    """A config file with its defaults list taken out."""
    content, text = read_yaml(path)
    package = None
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if found := _HEADER.match(line.strip()):
            package = found.group(1)
    defaults = content.pop("defaults", [])
    if not isinstance(defaults, list):
        raise FormatError(str(path), 0, "defaults: expected a list")
    return HydraFile(path, defaults, content, package)


@dataclass(frozen=True)
class Folders:
    """Where configs are looked up, the first that has one counts."""

    places: tuple[Path, ...]

    def has_group(self, group: str) -> bool:
        """Whether there is a folder of that group."""
        return any((place / group).is_dir() for place in self.places)

    def groups(self) -> list[str]:
        """All groups."""
        found = {
            entry.relative_to(place).as_posix()
            for place in self.places
            for entry in place.rglob("*")
            if entry.is_dir()
        }
        return sorted(found)

    def options(self, group: str) -> list[str]:
        """The configs of a group (empty: the root)."""
        return sorted({file.stem for place in self.places for file in (place / group).glob("*.yaml")})

    def find(self, group: str, name: str) -> Path:
        """The file of an option; UserError names the nearest one."""
        stem = name.removesuffix(".yaml")
        for place in self.places:
            file = place / group / f"{stem}.yaml"
            if file.is_file():
                return file
        known = self.options(group)
        listing = f"; there are: {', '.join(known)}" if known else ""
        what = f"option '{stem}' of the group {group}" if group else f"config '{stem}'"
        where = ", ".join(str(place) for place in self.places)
        raise UserError(f"[hydra] no {what} in {where}{nearest(stem, known)}{listing}")


def folders_of(asked: str | None, shipped: Sequence[Path]) -> Folders:
    """The folder that --config-path names, else the shipped ones (configs/clm)."""
    if asked is None:
        return Folders(tuple(shipped))
    for place in (Path(asked), *(folder.parent / asked for folder in shipped)):
        if place.is_dir():
            return Folders((place,))
    raise UserError(f"[hydra] --config-path: expected a folder, and '{asked}' is none")
