"""Convert the keys of a command, by the rows of its grammar, to an ordinary config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mudd_core.base.bounded_yaml import MOST_BITS
from mudd_core.base.errors import UserError
from mudd_core.config import Config, apply_overrides, split_words
from mudd_core.config.fields import Scalar, replace_path, walk
from mudd_core.config.mesh import SIZES
from mudd_core.config.origins import Origin
from mudd_core.config.values import KINDS, mismatch
from mudd_core.programs.row import COMMAND, WORKDIR, Row, Value

# Fields that a command may set together with a key for them: a mesh changes no result, and messages suggest it.
_CHANGEABLE = tuple(f"mesh.{name}" for name in SIZES)
_NO_FIELDS = (COMMAND, WORKDIR)


@dataclass(frozen=True)
class Setting:
    """The value of a key and its origin.

    default: the grammar's default. file, word: the file or argument that set the value; otherwise empty.
    """

    value: Value
    default: Value = None
    file: str = ""
    word: str = ""


@dataclass
class Applied:
    """An unchecked config after the keys of a grammar were applied."""

    config: Config
    origins: dict[str, Origin] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def apply(
    grammar: str,
    rows: Mapping[str, Row],
    config: Config,
    settings: Mapping[str, Setting],
    passed: Callable[[Row], bool] = lambda row: False,
) -> Applied:
    """Apply every key in the settings to the config; an absent key sets nothing.

    passed: a function that is true for rows whose fields the caller sets. Raise UserError for values that are refused.
    """
    values = {name: settings[name].value if name in settings else None for name in rows}
    defaults = {name: settings[name].default if name in settings else None for name in rows}
    result, first = Applied(config), dict[str, Scalar]()
    for row in rows.values():
        if row.name not in settings:
            continue
        setting = settings[row.name]
        _require_number(grammar, row, setting.value)
        result.notes += _judged(grammar, row, setting, values)
        if row.fate != "mapped" or passed(row):
            continue
        found = _converted(grammar, row, values)
        first |= _quietly(grammar, row, defaults)
        for path, value in found.items():
            result.config = _with(grammar, row, result.config, path, value)
            before = result.origins.get(path)
            word = " ".join(filter(None, (before.word if before else "", setting.word)))
            result.origins[path] = Origin(first.get(path), setting.file, word)
    return result


def _require_number(grammar: str, row: Row, value: Value) -> None:
    """Raise UserError for a value that fits no field: infinity, NaN, or an integer of more than MOST_BITS bits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"[{grammar}] {row.name}: expected a finite number, got {value!r}")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise UserError(
            f"[{grammar}] {row.name}: expected a number of at most {MOST_BITS} bits, got a larger one"
        )


def require_taken(grammar: str, row: Row, value: Value) -> None:
    """Raise UserError, with the alternative, for a value that mudd_core does not support for the key."""
    if any(_equal(value, one) for one in (row.default, *row.allowed)):
        return
    if row.fate == "refused":
        raise UserError(f"[{grammar}] {row.name}={value}: not supported; {row.text}")


def _judged(grammar: str, row: Row, setting: Setting, values: Mapping[str, Value]) -> list[str]:
    """Return lines for the user about a key; raise UserError if its value is not accepted."""
    require_taken(grammar, row, setting.value)
    try:
        note = row.note(values) if row.note else ""
    except (ValueError, TypeError, ArithmeticError) as error:
        raise _refusal(grammar, row, values, error) from error
    if row.fate == "noted" and setting.word and not any(_equal(setting.value, one) for one in row.allowed):
        return [f"{setting.word}: {row.text}"]
    if row.fate == "refused" and setting.word and not row.fields:
        return [f"{setting.word}: does nothing here"]
    return [note] if note else []


def _refusal(grammar: str, row: Row, values: Mapping[str, Value], error: Exception) -> UserError:
    """Return the error of a key. If the message starts with the name of another key, that name is kept."""
    text = str(error)
    return UserError(f"[{grammar}] {text if text.split(':')[0] in values else f'{row.name}: {text}'}")


def _equal(one: Value, other: Value) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _converted(grammar: str, row: Row, values: Mapping[str, Value]) -> Mapping[str, Scalar]:
    """Return the config values that one key sets, by path."""
    try:
        if row.convert is not None:
            return row.convert(values)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise _refusal(grammar, row, values, error) from error
    value, fields = values[row.name], [name for name in row.fields if name not in _NO_FIELDS]
    if value is None or not fields:
        return {}
    if isinstance(value, list | dict):
        raise UserError(f"[{grammar}] {row.name}: expected one value, got {value!r}")
    return {fields[0]: value}


def _quietly(grammar: str, row: Row, defaults: Mapping[str, Value]) -> Mapping[str, Scalar]:
    """Return the values of a key from the grammar's defaults alone; none if the defaults contradict each other."""
    try:
        return _converted(grammar, row, defaults)
    except UserError:
        return {}


def _with(grammar: str, row: Row, config: Config, path: str, value: Scalar) -> Config:
    """Return the config with a field set to the value, converted to the field's type."""
    info = next((info for info in walk(config) if info.path == path), None)
    if info is None:
        raise UserError(f"[{grammar}] {row.name}: a model of family {config.model.family} has no {path}")
    if info.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if info.kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not info.kind:
        raise mismatch(f"[{grammar}] {row.name}", KINDS[info.kind], value)
    return replace_path(config, path, value)


def with_own_words(
    grammar: str, applied: Applied, words: Sequence[str], known: Sequence[str] = ()
) -> Applied:
    """Add overrides of mudd_core's fields; raise UserError if a key has set the same field."""
    overrides = split_words(list(words), applied.config, known)
    origins, notes = dict(applied.origins), list(applied.notes)
    for item in overrides:
        before = origins.get(item.path)
        if before is not None and before.word:
            if item.path not in _CHANGEABLE:
                raise UserError(f"[{grammar}] {item.path} is given twice: {before.word} and {item.word}")
            notes.append(f"{item.word}: replaces the value that {before.word} sets")
        default = before.default if before is not None else None
        origins[item.path] = Origin(default, "", item.word)
    return Applied(apply_overrides(applied.config, overrides), origins, notes)
