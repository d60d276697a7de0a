"""Parse arguments that name keys of a table: `--name value`, `--name=value`, `--config.name=value` or `name=value`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudd_core.base.errors import UserError
from mudd_core.config.arguments import Arguments
from mudd_core.config.schema import fields_of_all
from mudd_core.config.suggest import nearest
from mudd_core.config.values import flag, number, whole
from mudd_core.programs.row import Row, Value

Typed = dict[str, tuple[str, str]]  # key -> (the argument as the user wrote it, its value)


def split_flags(grammar: str, words: Sequence[str], rows: Mapping[str, Row]) -> tuple[Typed, list[str]]:
    """Return (the keys that the user set, arguments that set config fields).

    Raise UserError for a bad or repeated name.
    """
    typed, own, arguments = Typed(), list[str](), Arguments(words)
    fields = fields_of_all()
    ours = {flag for info in fields for flag in (info.path.rpartition(".")[2], *info.flags)}
    for item in arguments:
        word, text = item.raw, item.value
        key = (item.option if item.mark == "~" else item.name).replace("-", "_")
        if key not in rows:
            if not (item.mark in ("-", "--") or text is not None) or ("." not in key and key not in ours):
                raise UserError(f"[{grammar}] {word}: unknown name '{key}'{nearest(key, [*rows, *ours])}")
            own += arguments.typed(item)
            continue
        if text is None:
            text = _behind(grammar, word, rows[key], arguments)
            word = word if not text else f"{word} {text}"
        if key in typed:
            raise UserError(f"[{grammar}] {key} is given twice: {typed[key][0]} and {word}")
        typed[key] = (word, text or "true")
    return typed, own


def _behind(grammar: str, word: str, row: Row, arguments: Arguments) -> str:
    """Consume and return the value that follows a flag; empty for a switch without a value."""
    if isinstance(row.default, bool):
        return arguments.plain_value() or ""
    behind = arguments.next()
    if behind is None or behind.mark == "--":
        raise UserError(f"[{grammar}] {word}: expected a value after it")
    return arguments.value() or ""


def value_of(grammar: str, name: str, like: Value, text: str) -> Value:
    """Parse the text as a value of the type of `like`."""
    place = f"[{grammar}] {name}"
    if isinstance(like, bool):
        return flag(place, text)
    if isinstance(like, int):
        return whole(place, text)
    return number(place, text) if isinstance(like, float) else text
