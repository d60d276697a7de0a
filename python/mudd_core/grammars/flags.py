"""Arguments that name keys of a table: `--name value`, `--name=value`, `--config.name=value` or `name=value`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudd_core.base.errors import UserError
from mudd_core.config.keys import Row, Value
from mudd_core.config.suggest import nearest
from mudd_core.config.values import flag, number, whole
from mudd_core.grammars.detect import fields_of_all

Typed = dict[str, tuple[str, str]]  # argument as typed, and its value, by key


def split_flags(grammar: str, words: Sequence[str], rows: Mapping[str, Row]) -> tuple[Typed, list[str]]:
    """(keys that are typed, arguments about fields of ours); UserError for a name that is neither, or given twice."""
    typed, own, rest = Typed(), list[str](), list(words)
    fields = fields_of_all()
    ours = {flag for info in fields for flag in (info.path.rpartition(".")[2], *info.flags)}
    while rest:
        word = rest.pop(0)
        name, equals, text = word.partition("=")
        key = name.lstrip("-+").removeprefix("config.").replace("-", "_")
        if key not in rows:
            if not (word.startswith("-") or equals) or ("." not in key and key not in ours):
                raise UserError(f"[{grammar}] {word}: unknown name '{key}'{nearest(key, [*rows, *ours])}")
            own.append(word)
            if not equals and rest and "=" not in rest[0] and not rest[0].startswith("--"):
                own.append(rest.pop(0))
            continue
        if not equals:
            text = _behind(grammar, word, rows[key], rest)
            word = word if not text else f"{word} {text}"
        if key in typed:
            raise UserError(f"[{grammar}] {key} is given twice: {typed[key][0]} and {word}")
        typed[key] = (word, text or "true")
    return typed, own


def _behind(grammar: str, word: str, row: Row, rest: list[str]) -> str:
    """The value behind a flag, taken off the rest; empty for a switch that has none."""
    bare = not rest or rest[0].startswith("--") or (isinstance(row.default, bool) and "=" in rest[0])
    if bare and isinstance(row.default, bool):
        return ""
    if bare:
        raise UserError(f"[{grammar}] {word}: expected a value behind it")
    return rest.pop(0)


def value_of(grammar: str, name: str, like: Value, text: str) -> Value:
    """The text as a value of the type of another one."""
    place = f"[{grammar}] {name}"
    if isinstance(like, bool):
        return flag(place, text)
    if isinstance(like, int):
        return whole(place, text)
    return number(place, text) if isinstance(like, float) else text
