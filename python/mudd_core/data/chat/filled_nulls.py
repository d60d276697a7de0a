"""Remove the nulls that tables put in place of missing keys: Parquet, Arrow, and jsonl files from `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.types import Json, JsonObject
from mudd_core.data.formats.format import BadRecords, Format

Place = tuple[str, ...]  # the keys that lead to an object; indices of lists are left out


class FilledNulls:
    """The places in a file at which objects have nulls instead of missing keys."""

    def __init__(self, file: Path, one: Format) -> None:
        """Read the file if it is JSON.

        The nulls of a place come from a table if all objects there have the same keys and some values are null. If
        other objects lack the key, the author wrote the null.
        """
        self._everywhere = (
            one.by_number is not None and one.by_number.in_groups
        )  # the file is a table of columns
        self._places: set[Place] = set()
        if self._everywhere or one.objects is None:
            return
        members: dict[Place, set[frozenset[str]]] = {}
        counts: dict[Place, int] = {}
        nulls: set[Place] = set()
        for record in one.objects(file, BadRecords(drops=True)):
            for place, found in _objects(record, ()):
                members.setdefault(place, set()).add(frozenset(found))
                counts[place] = counts.get(place, 0) + 1
                if None in found.values():
                    nulls.add(place)
        self._places = {place for place in nulls if len(members[place]) == 1 and counts[place] > 1}

    def removed(self, record: JsonObject) -> JsonObject:
        """Return a record without the nulls of tables."""
        return self._object(record, ()) if self._everywhere or self._places else record

    def _object(self, value: JsonObject, place: Place) -> JsonObject:
        drops = self._everywhere or place in self._places
        return {
            name: self._value(member, (*place, name))
            for name, member in value.items()
            if member is not None or not drops
        }

    def _value(self, value: Json, place: Place) -> Json:
        if isinstance(value, dict):
            return self._object(value, place)
        return [self._value(one, place) for one in value] if isinstance(value, list) else value


def _objects(value: Json, place: Place) -> Iterator[tuple[Place, JsonObject]]:
    """Yield the objects inside a value with their places."""
    if isinstance(value, dict):
        yield place, value
        for name, member in value.items():
            yield from _objects(member, (*place, name))
    elif isinstance(value, list):
        for one in value:
            yield from _objects(one, place)
