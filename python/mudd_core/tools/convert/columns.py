"""Column types for a table of records: one type for each key, found by reading all records.

A table fills missing keys with nulls and gives all objects of a column one order of keys. Readers of conversations
undo the nulls, and templates print objects such as the arguments of a tool call in the order of their keys. So a
record that a table would change is refused. This does not apply to records and turns, whose keys are read by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32, Int64, Json

if TYPE_CHECKING:
    import pyarrow

Cell: TypeAlias = "Json | Int64 | Float32"  # a value of a record
Row: TypeAlias = Mapping[str, Cell]
_MOST_KEYS = 1000  # keys in all objects; with more of them, the keys are data
_NAMES = {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object"}
_SHOWN = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "text": "text",
    "list": "a list",
    "object": "an object",
}


class NoColumnError(UserError):
    """A value that no column of a table can store. Attributes: place, the key; reason, a message."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"key {place!r} {reason}")
        self.place, self.reason = place, reason


@dataclass
class Column:
    """The type of the values at one place, such as messages[].content.

    kind: a key of _SHOWN, empty while all values are null. first: the index of the record that decided it. element: of
    a list. members: of an object, in the order of `names`. depth: the number of objects around the values.
    """

    place: str = ""
    depth: int = 0
    kind: str = ""
    first: int = 0
    element: Column | None = None
    members: dict[str, Column] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def add(self, value: Cell, record: int) -> None:
        """Extend the type by a value; raise NoColumnError if it does not fit. record: its index, for messages."""
        if value is None:
            return
        if isinstance(value, np.ndarray):
            self._set("list", record)
            if value.size:
                self._elements().add(value.flat[0].item(), record)
            return
        kind = _NAMES[type(value)]
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise NoColumnError(self.place, f"has a number of more than 64 bits in record {record}")
        self._set(kind, record)
        if isinstance(value, list):
            elements = self._elements()
            for one in value:
                elements.add(one, record)
        elif isinstance(value, dict):
            self.add_members(value, record)

    def _set(self, kind: str, record: int) -> None:
        if not self.kind:
            self.kind, self.first = kind, record
        elif self.kind != kind:
            # No pipeline reads numbers of the record itself, but some read lists of whole numbers.
            is_member = self.depth == 1 and not self.place.endswith("[]")
            if is_member and {self.kind, kind} == {"int", "float"}:
                self.kind = "float"
                return
            raise NoColumnError(
                self.place,
                f"has {_SHOWN[self.kind]} in record {self.first} and {_SHOWN[kind]} in record {record}",
            )

    def _elements(self) -> Column:
        if self.element is None:
            self.element = Column(f"{self.place}[]", self.depth)
        return self.element

    def add_members(self, value: Row, record: int) -> None:
        """Extend the members of an object by the members of another one, such as a whole record."""
        exact = self.depth > 0 and "role" not in value
        at = 0
        for name, member in value.items():
            if name not in self.members:
                place = f"{self.place}.{name}" if self.place else name
                self.members[name] = Column(place, self.depth + 1)
                self.names.insert(at if exact else len(self.names), name)
            found = self.names.index(name)
            if exact and found < at:
                raise NoColumnError(
                    self.members[name].place, f"is in another order in record {record} than before"
                )
            if exact and member is None:
                reason = f"is null in record {record}, which a table cannot tell from a missing key"
                raise NoColumnError(self.members[name].place, reason)
            at = max(at, found + 1)
            self.members[name].add(member, record)

    def columns(self) -> Iterator[Column]:
        """Yield this column and all columns inside it."""
        yield self
        for inner in (*([self.element] if self.element else []), *self.members.values()):
            yield from inner.columns()

    def check(self, may_be_empty: bool) -> None:
        """Raise NoColumnError for too many keys, and for objects without keys unless the format has them."""
        count = 0
        for one in self.columns():
            count += len(one.members)
            if count > _MOST_KEYS:
                raise NoColumnError(one.place or "record", f"has more than {_MOST_KEYS:,} different keys")
            if one.kind == "object" and not one.members and one.depth and not may_be_empty:
                raise NoColumnError(one.place, "has only objects without keys")

    def arrow_type(self) -> pyarrow.DataType:
        """Return the type of pyarrow."""
        import pyarrow

        if self.kind == "list":
            return pyarrow.list_(self._elements().arrow_type())
        if self.kind == "object":
            return pyarrow.struct([(name, self.members[name].arrow_type()) for name in self.names])
        plain = {
            "": pyarrow.null(),
            "bool": pyarrow.bool_(),
            "int": pyarrow.int64(),
            "float": pyarrow.float64(),
            "text": pyarrow.string(),
        }
        return plain[self.kind]

    def schema(self) -> pyarrow.Schema:
        """Return the schema of the records, whose columns are the members of this object."""
        import pyarrow

        return pyarrow.schema([(name, self.members[name].arrow_type()) for name in self.names])
