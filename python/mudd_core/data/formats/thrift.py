"""Read structures in Thrift's compact protocol, as far as the footer of a Parquet file needs them.

The format follows the specification of Apache Thrift. pyarrow ends the whole process on some damaged column metadata,
so this module reads the values that a reader needs before it decodes.
"""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = "bool | int | bytes | list[Value] | dict[int, Value]"

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_WHOLE = (4, 5, 6)  # i16, i32, i64
_DEEPEST = 32  # nesting of structures: a footer has eight levels


class Compact:
    """A reader of consecutive values. Raise ValueError if the bytes are not such a structure, or end within it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> dict[int, Value]:
        """Return the fields of a structure by their ids."""
        if depth > _DEEPEST:
            raise ValueError(f"structures are nested more than {_DEEPEST} deep")
        fields: dict[int, Value] = {}
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def first_number(self, wanted: int) -> int:
        """Return the integer in field `wanted`. Only integers may precede it; later fields are not read."""
        number = 0
        while (head := self._byte()) and (head & 0x0F) in _WHOLE:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            value = self._zigzag()
            if number == wanted:
                return value
        raise ValueError(f"there is no integer in field {wanted}")

    def _value(self, kind: int, depth: int) -> Value:
        if kind in _WHOLE:
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind in (_BYTE, _TRUE, _FALSE):  # a boolean in a list has a separate byte
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _MAP:
            return self._map(depth)
        raise ValueError(f"unknown type {kind}")

    def _list(self, depth: int) -> list[Value]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        return [self._value(head & 0x0F, depth + 1) for _ in range(self._counted(count))]

    def _map(self, depth: int) -> list[Value]:
        count = self._counted(self._varint())
        kinds = self._byte() if count else 0
        return [self._value(kind, depth + 1) for _ in range(count) for kind in (kinds >> 4, kinds & 0x0F)]

    def _counted(self, count: int) -> int:
        if (
            count > len(self._data) - self._at
        ):  # every element has at least one byte, so a larger count is damage
            raise ValueError(f"a list of {count} elements does not fit")
        return count

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number has more than 64 bits")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise ValueError("the structure is truncated")
        self._at += count
        return part
