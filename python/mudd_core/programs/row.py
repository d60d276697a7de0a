"""A row of the table of keys: a key of an original program, its default there, and its treatment here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from mudd_core.base.types import Json
from mudd_core.config.fields import Scalar

Fate = Literal["mapped", "noted", "refused"]
Value = Json
Values = Mapping[str, Value]
Convert = Callable[[Values], Mapping[str, Scalar]]
Note = Callable[[Values], str]
Key = str

WORKDIR, COMMAND = "(work directory)", "(command)"  # listed as fields of keys that decide them


@dataclass(frozen=True)
class Row:
    """A key of a grammar.

    default: the original's default, which is always accepted. fields: config fields that a mapped key decides.
    text: of a mapped key, its meaning; of a noted one, why it has no effect; of a refused one, the alternative.
    convert: returns field values by path from all keys of the grammar, defaults included; None copies the value to the
    one field. note: returns a line for the user, or an empty string. Both may raise ValueError for a wrong value.
    allowed: further values that a refused key accepts.
    """

    grammar: str
    name: Key
    default: Value
    fate: Fate
    fields: tuple[str, ...] = ()
    text: str = ""
    convert: Convert | None = None
    allowed: tuple[Value, ...] = ()
    note: Note | None = None

    @property
    def meaning(self) -> str:
        """Return the text, introduced by the meaning of the key's fate."""
        fates = {"noted": "does nothing here: ", "refused": "other values are refused: "}
        return fates.get(self.fate, "") + self.text


def mapped(
    grammar: str,
    name: Key,
    default: Value,
    *fields: str,
    text: str = "",
    convert: Convert | None = None,
    note: Note | None = None,
) -> Row:
    """Build a key that decides fields of the config."""
    return Row(grammar, name, default, "mapped", fields, text, convert, note=note)


def noted(grammar: str, name: Key, default: Value, text: str) -> Row:
    """Build a key that is accepted without effect; a printed line gives the reason."""
    return Row(grammar, name, default, "noted", text=text)


def refused(grammar: str, name: Key, default: Value, text: str, *allowed: Value) -> Row:
    """Build a key that only accepts its default and the allowed values; others exit with code 2 and an alternative."""
    return Row(grammar, name, default, "refused", text=text, allowed=allowed)
