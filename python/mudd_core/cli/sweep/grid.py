"""The cells of a grid: the axes in the arguments, and the name and the arguments of each cell."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config import load_config
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.config.overrides import Override, field_path, parse_value, split_words

_LONGEST = 120  # characters of a folder's name
_IN_NAMES = "._+-"  # characters that a folder's name keeps; others become -


@dataclass(frozen=True)
class Cell:
    """A combination of values. name: of its folder. values: one for each axis. arguments: the arguments of its run."""

    name: str
    values: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """fields: the fields of the axes in the order of the arguments. cells: the last field changes fastest."""

    fields: tuple[str, ...]
    cells: tuple[Cell, ...]


def grid_of(config: str, words: Sequence[str]) -> Grid:
    """Return the cells of the arguments; every cell's config is loaded and checked.

    An axis is a field with several values, `optim.lr=1e-3,3e-3`, or a field that is set several times. A string
    may contain commas, so it is never split. Raise UserError for a value that a field cannot have.
    """
    base = load_config(config)
    infos = {info.path: info for info in walk(base)}
    asked: dict[str, list[str]] = {}
    for item in split_words(words, base):
        path = field_path(item.path, list(infos.values())) or item.path
        asked.setdefault(path, []).extend(_values(infos.get(path), item))
    for path, values in asked.items():
        _require_distinct(infos.get(path), path, values)
    fixed = [f"{path}={values[0]}" for path, values in asked.items() if len(values) == 1]
    axes = {path: values for path, values in asked.items() if len(values) > 1}
    if not axes:
        got = words[0] if words else "none"
        raise UserError(
            f"[sweep] expected a field with several values, such as optim.lr=1e-3,3e-3, got {got}"
        )
    cells = tuple(_cell(tuple(axes), values, fixed) for values in itertools.product(*axes.values()))
    _require_own_folders(cells)
    for cell in cells:
        load_config(config, list(cell.arguments))
    return Grid(tuple(axes), cells)


def _require_own_folders(cells: Sequence[Cell]) -> None:
    """Raise UserError if two cells have one folder: a name has - for other characters, so a/b and a-b are alike."""
    first = dict[str, Cell]()
    for cell in cells:
        other = first.setdefault(cell.name, cell)
        if other is not cell:
            raise UserError(
                f"[sweep] expected a folder for each run, got {cell.name} for "
                f"{', '.join(other.values)} and for {', '.join(cell.values)}; rename one"
            )


def _values(info: FieldInfo | None, item: Override) -> list[str]:
    """Return the values of an argument: several for numbers, switches, choices and families with commas between."""
    splits = info is not None and (info.kind is not str or info.choices or info.path == FAMILY)
    return item.text.split(",") if splits else [item.text]


def _require_distinct(info: FieldInfo | None, path: str, values: Sequence[str]) -> None:
    """Raise UserError for a value that is named twice: 1e-3 and 0.001 are one value."""
    parsed = [text if info is None else parse_value(info, text) for text in values]
    (most, count), *_ = Counter(parsed).most_common(1)
    if count > 1:
        raise UserError(f"[sweep] {path}: expected each value once, got {most} {count} times")


def _cell(fields: Sequence[str], values: Sequence[str], fixed: Sequence[str]) -> Cell:
    """Return a cell; its name has the last part of each field, and the whole field if two fields end alike."""
    leaves = [field.rpartition(".")[2] for field in fields]
    short = leaves if len(set(leaves)) == len(leaves) else fields
    name = ",".join(f"{field}={_in_name(value)}" for field, value in zip(short, values, strict=True))
    if len(name) > _LONGEST:
        raise UserError(
            f"[sweep] expected names of folders of at most {_LONGEST} characters, got {name[:40]}... with {len(name)}; "
            "give fewer fields several values"
        )
    own = [f"{field}={value}" for field, value in zip(fields, values, strict=True)]
    return Cell(name, tuple(values), (*fixed, *own))


def _in_name(value: str) -> str:
    return "".join(one if one.isalnum() or one in _IN_NAMES else "-" for one in value)
