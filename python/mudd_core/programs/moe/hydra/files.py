"""YAML files of a Hydra config folder: read as OmegaConf reads them, with the package of their header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.bounded_yaml import read_yaml
from mudd_core.base.errors import UserError
from mudd_core.config.suggest import nearest
from mudd_core.programs.moe.hydra.values import Node

_HEADER = re.compile(r"#\s*@package\s+([\w.]+)\s*$")


@dataclass(frozen=True)
class HydraFile:
    """A config of a group, or the root: its defaults list, its content, and where that is put (None: its group)."""

    path: Path
    defaults: list[Node]
    content: dict[str, Node] = field(default_factory=dict)
    package: str | None = None


def config_error(path: Path, reason: str) -> UserError:
    """The error of a config file."""
    return UserError(f"[hydra] {path}: {reason}")


def _read(path: Path) -> tuple[dict[str, Node], str]:
    """The mapping in a file, and its text."""
    found, text = read_yaml("[hydra]", path)
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise config_error(path, f"expected keys with values, got {type(found).__name__}")
    return {str(key): _node(value) for key, value in found.items()}, text


def _node(value: object) -> Node:
    """A value whose aliases are written out, and whose keys are strings."""
    if isinstance(value, dict):
        return {str(key): _node(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_node(child) for child in value]
    assert value is None or isinstance(value, bool | int | float | str)  # all that read_yaml makes
    return value


def read_file(path: Path) -> HydraFile:
    """A config file with its defaults list taken out."""
    content, text = _read(path)
    package = None
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if found := _HEADER.match(line.strip()):
            package = found.group(1)
    defaults = content.pop("defaults", [])
    if not isinstance(defaults, list):
        raise config_error(path, "defaults: expected a list")
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
