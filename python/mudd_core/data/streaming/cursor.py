"""The place of a stream in its data: a few integers that a checkpoint keeps. Version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeGuard, Unpack

from mudd_core.base.errors import DataEndError
from mudd_core.base.types import Int32, Json
from mudd_core.config.pipelines import spec_of
from mudd_core.data.rows import Cursor, CursorMembers

VERSION = 1


class BatchStream(Protocol):
    """Batches of training from a place on."""

    batch: int  # number of the next one

    def next_batch(self) -> dict[str, Int32]:
        """Arrays [B, T] of the next batch. UserError where the data end."""

    def cursor(self) -> Cursor:
        """The place of the next batch."""

    def close(self) -> None:
        """End its processes."""


def made(pipeline: str, batch: int, **members: Unpack[CursorMembers]) -> Cursor:
    """A cursor of this version."""
    return {"version": VERSION, "pipeline": pipeline, "batch": batch, **members}


def is_known(cursor: object, pipeline: str) -> TypeGuard[Cursor]:
    """Whether this version of this pipeline can go on from a cursor; others find the place from the beginning."""
    if not isinstance(cursor, Mapping) or cursor.get("version") != VERSION:
        return False
    fits = cursor.get("pipeline") == pipeline and cursor.keys() >= spec_of(pipeline).cursor_members
    return fits and _whole(dict(cursor))


def _whole(value: Json) -> bool:
    """Whether all numbers of the members are whole and not negative."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _whole(member) for name, member in value.items())
    if isinstance(value, list | tuple):
        return all(map(_whole, value))
    return isinstance(value, str) or (type(value) is int and 0 <= value < 1 << 63)


def data_end(batch: int, epochs: int) -> DataEndError:
    """What a run hears whose data end before its steps do."""
    return DataEndError(
        f"[data.epochs] the data end before batch {batch:,} (data.epochs={epochs}); set train.steps={batch} or "
        "data.epochs=0"
    )
