"""Classes of a user's file (exp.py): keys are plain class attributes on top of a named base class."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_text
from mudd_core.config.load import run_module
from mudd_core.config.suggest import nearest
from mudd_core.programs.maxtext.keys import CLASS
from mudd_core.programs.maxtext.keys_classes import CLASSES
from mudd_core.programs.row import Row, Value

_FILE = "exp.py"  # MUDDFormer's program keeps its config classes in this file


def class_of(name: str, yml: str, rows: Mapping[str, Row], hint: str) -> tuple[dict[str, Value], str]:
    """Return (settings, place) of a class: FILE.py:NAME, a class in exp.py, or a class of the program.

    yml: the base file. exp.py is searched in its folder, in the parent folder (MaxText/exp.py for MaxText/configs), in
    the current folder and in MaxText/. hint: for the message if the name is unknown.
    """
    file, colon, plain = name.rpartition(":")
    if colon and file.endswith(".py"):
        path = Path(file)
        if plain not in _names(path):
            raise UserError(f"[maxtext] {CLASS}: {path} has no class '{plain}'{nearest(plain, _names(path))}")
        return _settings(path, plain, rows), f"class {plain} of {path}"
    places = [path for path in _places(yml) if path.is_file()]
    for path in places:
        if name in _names(path):
            return _settings(path, name, rows), f"class {name} of {path}"
    if name in CLASSES:
        return dict(CLASSES[name]), f"class {name}"
    own = [known for path in places for known in _names(path)]
    searched = f" or a class of {', '.join(map(str, places))}" if places else f" or {CLASS}=FILE.py:NAME"
    raise UserError(
        f"[maxtext] {CLASS}: expected one of {', '.join(CLASSES)}{searched}, got '{name}'"
        f"{nearest(name, [*own, *CLASSES]) if hint == '' else hint}"
    )


def _places(yml: str) -> Iterator[Path]:
    folder = Path(yml).parent
    found = (folder / _FILE, folder.parent / _FILE, Path(_FILE), Path("MaxText") / _FILE)
    return iter(dict.fromkeys(found))


def _names(path: Path) -> list[str]:
    """Return the names of the classes that a file defines, without running it."""
    try:
        tree = ast.parse(read_text(path), str(path))
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        raise UserError(f"[maxtext] {CLASS}: {path}: {error}") from error
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _settings(path: Path, name: str, rows: Mapping[str, Row]) -> dict[str, Value]:
    """Return the attributes of a class and its base classes; raise UserError unless they are keys with plain values."""
    known = {base: type(base, (), dict(values)) for base, values in CLASSES.items()}
    found = getattr(run_module(path, known), name)
    settings: dict[str, Value] = {}
    for base in reversed(found.__mro__[:-1]):
        settings |= {key: value for key, value in vars(base).items() if not key.startswith("__")}
    settings.pop(CLASS, None)  # CLASS is the class's own name, which the program's classes contain
    for key, value in settings.items():
        _check(f"{path}: {name}.{key}", key, value, rows)
    return settings


def _check(place: str, key: str, value: Value, rows: Mapping[str, Row]) -> None:
    if key not in rows:
        raise UserError(f"[maxtext] {place}: no such key{nearest(key, rows)}")
    wanted = rows[key].default
    if value is None or wanted is None:
        return
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    kind = int if type(wanted) is float else type(wanted)
    if type(value) is kind or (kind is int and type(value) is float):
        return
    raise UserError(f"[maxtext] {place}: expected {kinds.get(kind, kind.__name__)}, got {value!r}")
