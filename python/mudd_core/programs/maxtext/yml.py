"""yml files of MaxText's forks: find them, resolve inheritance, and parse values of the command line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.bounded_yaml import parse_yaml, read_yaml
from mudd_core.base.errors import UserError
from mudd_core.config import config_folders
from mudd_core.config.own_files import files_read
from mudd_core.config.suggest import nearest
from mudd_core.config.values import flag, mismatch, number, spelled, whole
from mudd_core.programs.maxtext.keys import BASE_FILE
from mudd_core.programs.row import Value

_MOST_FILES = 16  # longest chain of inheritance, in files


@dataclass
class Yml:
    """The keys of a yml file, merged with the files that it inherits from.

    values: the merged keys; a file overrides its base. defaults: the keys of the last base. origin: the file that set
    a key. files: all files, the requested one first. twice: lines about keys that a file has twice.
    """

    values: dict[str, Value] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def unknown(self, known: Collection[str]) -> list[str]:
        """Return the keys that are not in `known`."""
        return sorted(set(self.values) - set(known))


def find_yml(name: str) -> Path:
    """Find the file of this name. If it does not exist, drop leading folders until the rest is in configs/."""
    asked = Path(name)
    if asked.is_file():
        return asked
    parts, there = asked.parts, Path()
    for i, part in enumerate(parts[:-1]):
        there = there / part
        if there.is_dir():
            continue
        rest = Path(*parts[i + 1 :])
        found = _below_configs(rest) or _below_configs(Path(rest.name))
        if found:
            return found
        break
    if len(parts) == 1 and (found := _below_configs(asked)):
        return found
    known = sorted({path.name for folder in config_folders() for path in folder.rglob("*.yml")})
    hint = nearest(asked.name, known) or f"; there are {', '.join(known)}"
    raise UserError(f"[maxtext] no yml file '{name}'{hint}")


def _below_configs(rest: Path) -> Path | None:
    for folder in config_folders():
        below = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        for path in (folder / rest, *(entry / rest for entry in below)):
            if path.is_file():
                return path
    return None


def read_yml(name: str) -> Yml:
    """Read a yml file and its chain of base files; raise UserError for a file that is not a mapping of keys."""
    chain: list[tuple[Path, dict[str, Value]]] = []
    path, twice = find_yml(name), list[str]()
    while True:
        if any(path.resolve() == other.resolve() for other, _ in chain):
            raise UserError(
                f"[maxtext] {path}: {BASE_FILE}: expected a file that does not inherit from itself"
            )
        if len(chain) == _MOST_FILES:
            raise UserError(
                f"[maxtext] {chain[-1][0]}: {BASE_FILE}: expected at most {_MOST_FILES} files that inherit from each "
                "other, got more; put their keys into fewer files"
            )
        keys, again = _keys(path)
        if again:
            twice.append(f"{path}: the last value of {', '.join(again)} is used, given twice there")
        chain.append((path, keys))
        files_read.append(path)
        base = keys.get(BASE_FILE)
        if not base:
            break
        beside = path.parent / str(base)
        path = beside if beside.is_file() else find_yml(str(base))
    yml = Yml(files=[str(path) for path, _ in chain], twice=twice)
    for path, keys in reversed(chain):
        yml.values |= keys
        yml.defaults = yml.defaults or dict(keys)
        yml.origin |= dict.fromkeys(keys, str(path))
    return yml


def _keys(path: Path) -> tuple[dict[str, Value], list[str]]:
    """Return (the keys of a file, the repeated ones); the last value is used, as in MaxText."""
    twice = list[str]()
    found, _ = read_yaml("[maxtext]", path, twice=twice)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UserError(f"[maxtext] {path}: expected key: value, a line each")
    return {key: spelled(value) for key, value in found.items()}, [key for key in found if key in twice]


def typed_value(name: str, value: Value, default: Value, text: str) -> Value:
    """Parse a command-line value as the type of the value that it replaces, or of the key's default; None is null."""
    if text == "None":
        return None
    kind, place = type(default if value is None else value), f"[maxtext] {name}"
    if kind is bool:
        return flag(place, text)
    if kind is str:
        return text
    if kind is int:
        return whole(place, text)
    if kind is float:
        return number(place, text)
    found = parse_yaml(place, text)
    if found is None or isinstance(found, bool | int | float | str | list):
        return found
    raise mismatch(place, "one value or a list", text)
