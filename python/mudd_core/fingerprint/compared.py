"""The first value at which two recorded steps differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.fingerprint.lines import WHOLE_STEP, Line
from mudd_core.fingerprint.record import StepRecord


@dataclass(frozen=True)
class Pair:
    """The same value of two steps, a and b.

    rows: for the stage "data", the sequences of the batch whose ids differ, from 0.
    """

    a: Line
    b: Line
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        rows = f"; sequences of the batch that differ: {_numbers(self.rows)}" if self.rows else ""
        return f"{self.a.title()}, {self.a.form()}{rows}"


def first_difference(a: StepRecord, b: StepRecord) -> Pair | None:
    """Return the first value that differs in the order of the step; None if all values that both have are equal.

    All values before it agree, so its inputs agree: the op that computed it, or the cause that it names, is where the
    steps part. If the records have other micro-batches or ranks, only values of the whole step are compared. Raise
    UserError for records of different precisions, or without a common value.
    """
    if a.header.precision != b.header.precision:
        raise UserError(
            f"[diff] precision: expected records of one precision, got {a.header.precision} and "
            f"{b.header.precision}; mc.first_difference(a, b, batch, ulp=64) compares two models in one process"
        )
    others = {line.key: line for line in b.lines}
    pairs = [Pair(line, others[line.key]) for line in a.lines if line.key in others]
    if _split(a) != _split(b):
        pairs = [pair for pair in pairs if pair.a.key.stage in WHOLE_STEP or pair.a.op == "sum over ranks"]
    if not any(pair.a.same_form(pair.b) for pair in pairs):
        raise UserError(
            "[diff] records: expected two of one architecture and batch, got records without a common value"
        )
    return first_pair(pairs)


def first_pair(pairs: Sequence[Pair]) -> Pair | None:
    """Return the first pair of values that can be compared and have different digests, with the rows that differ."""
    differing = [pair for pair in pairs if pair.a.same_form(pair.b) and pair.a.digest != pair.b.digest]
    if not differing:
        return None
    first = differing[0]
    if first.a.key.stage != "data":
        return first
    begin = min(pair.a.first_row for pair in pairs if pair.a.key.stage == "data")
    same = (pair for pair in differing if pair.a.key[2:] == first.a.key[2:])
    rows = sorted({row - begin for pair in same for row in _rows(pair.a, pair.b)})
    return Pair(first.a, first.b, tuple(rows))


def _split(record: StepRecord) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Return the sequences of each graph run: other ones have other gradients, which only agree in their sum."""
    data = [line for line in record.lines if line.key.stage == "data" and line.key.value == "inputs"]
    # After a rewind a run trains on later samples than its step says.
    begin = min((line.first_row for line in data), default=0)
    return [(line.key.rank, line.key.run, line.shape, line.first_row - begin) for line in data]


def _rows(a: Line, b: Line) -> tuple[int, ...]:
    pairs = enumerate(zip(a.rows, b.rows, strict=False), start=a.first_row)
    return tuple(row for row, (one, other) in pairs if one != other)


def _numbers(rows: tuple[int, ...]) -> str:
    more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
    return ", ".join(map(str, rows[:10])) + more
