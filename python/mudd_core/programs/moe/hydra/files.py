"""YAML files of a Hydra config folder, parsed as by OmegaConf, with the package from their header."""

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
    """A config file: its defaults list, its content, and the package into which it is merged (None: its group)."""

    path: Path
    defaults: list[Node]
    content: dict[str, Node] = field(default_factory=dict)
    package: str | None = None


def config_error(path: Path, reason: str) -> UserError:
    """Return the error for a config file."""
    return UserError(f"[hydra] {path}: {reason}")


def _read(path: Path) -> tuple[dict[str, Node], str]:
    """Return the mapping in a file, and the file's content."""
    found, text = read_yaml("[hydra]", path)
    if found is None:
        found = {}
    if not isinstance(found, dict):
        raise config_error(path, f"expected keys with values, got {type(found).__name__}")
    return {str(key): _node(value) for key, value in found.items()}, text


def _node(value: object) -> Node:
    """Copy a value with aliases expanded and keys as strings."""
    if isinstance(value, dict):
        return {str(key): _node(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_node(child) for child in value]
    assert value is None or isinstance(value, bool | int | float | str)  # read_yaml returns no other types
    return value


def read_file(path: Path) -> HydraFile:
    """Read a config file and separate its defaults list."""
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
    """The folders in which configs are looked up; the first match is used."""

    places: tuple[Path, ...]

    def has_group(self, group: str) -> bool:
        """Return whether a folder of that group exists."""
        return any((place / group).is_dir() for place in self.places)

    def groups(self) -> list[str]:
        """Return all groups."""
        found = {
            entry.relative_to(place).as_posix()
            for place in self.places
            for entry in place.rglob("*")
            if entry.is_dir()
        }
        return sorted(found)

    def options(self, group: str) -> list[str]:
        """Return the configs of a group (empty: the root)."""
        return sorted({file.stem for place in self.places for file in (place / group).glob("*.yaml")})

    def find(self, group: str, name: str) -> Path:
        """Return the file of an option; raise UserError that names the nearest option."""
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
    """Return the folder that --config-path names, else the shipped ones (configs/clm)."""
    if asked is None:
        return Folders(tuple(shipped))
    for place in (Path(asked), *(folder.parent / asked for folder in shipped)):
        if place.is_dir():
            return Folders((place,))
    raise UserError(f"[hydra] --config-path: expected a folder, and '{asked}' is none")
