"""One row of the table of keys: a name of an original program, its default there, and what becomes of it here."""

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

WORKDIR, COMMAND = "(work directory)", "(command)"  # stand among the fields of keys that decide these


@dataclass(frozen=True)
class Row:
    """A key of a grammar.

    default: the original's; a value equal to it is never refused. fields: paths of ours that a mapped key decides.
    text: mapped, what is converted; noted, why the key does nothing here; refused, the way out.
    convert: our values by path, from all keys of the grammar resolved so far (this one among them, with its default
    where it is not given); None: the value goes to the one field as it is. Both convert and note may raise ValueError
    for a value that the key cannot have. allowed: values that a refused key takes.
    note: a line for the user about the values, empty if there is nothing to say.
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
        """The text with what the fate of the key means."""
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
    """A key that decides fields of ours."""
    return Row(grammar, name, default, "mapped", fields, text, convert, note=note)


def noted(grammar: str, name: Key, default: Value, text: str) -> Row:
    """A key that is accepted and does nothing; one printed line says why."""
    return Row(grammar, name, default, "noted", text=text)


def refused(grammar: str, name: Key, default: Value, text: str, *allowed: Value) -> Row:
    """A key that ends with exit code 2 and the way out, for values other than its default and the allowed ones."""
    return Row(grammar, name, default, "refused", text=text, allowed=allowed)
