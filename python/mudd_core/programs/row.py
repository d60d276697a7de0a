"""A row of the table of keys: a key of an original program, its default there, and its treatment in mudd_core."""

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

WORKDIR, COMMAND = "(work directory)", "(command)"  # listed as the fields of keys that set them


@dataclass(frozen=True)
class Row:
    """A key of a grammar.

    default: the original's default, which is always accepted. fields: config fields that a mapped key sets.
    text: the meaning of a mapped key, the reason why a noted key has no effect, or the alternative to a refused key.
    convert: returns field values by path from all keys of the grammar, including defaults; None copies the value to the
    only field. note: returns a line for the user, or an empty string. Both may raise ValueError for a wrong value.
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
        """Return the text, after a phrase that says whether the key is mapped, noted or refused."""
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
    """Build a key that sets fields of the config."""
    return Row(grammar, name, default, "mapped", fields, text, convert, note=note)


def noted(grammar: str, name: Key, default: Value, text: str) -> Row:
    """Build a key that is accepted without effect; a printed line gives the reason."""
    return Row(grammar, name, default, "noted", text=text)


def refused(grammar: str, name: Key, default: Value, text: str, *allowed: Value) -> Row:
    """Build a key that accepts only its default and the allowed values.

    Other values exit with code 2 and an alternative.
    """
    return Row(grammar, name, default, "refused", text=text, allowed=allowed)
