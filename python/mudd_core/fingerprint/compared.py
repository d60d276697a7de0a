"""The first value at which two recorded steps differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.fingerprint.lines import Line
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
    steps part. Raise UserError for records of different precisions, or without a common value.
    """
    if a.header.precision != b.header.precision:
        raise UserError(
            f"[diff] precision: expected records of one precision, got {a.header.precision} and "
            f"{b.header.precision}; mc.first_difference(a, b, batch, ulp=64) compares two models in one process"
        )
    others = {line.key: line for line in b.lines}
    pairs = [Pair(line, others[line.key]) for line in a.lines if line.key in others]
    if not any(pair.a.same_form(pair.b) for pair in pairs):
        raise UserError(
            "[diff] records: expected two of one architecture and batch, got records without a common value"
        )
    return first_pair(pairs)


def first_pair(pairs: Iterable[Pair]) -> Pair | None:
    """Return the first pair of values that can be compared and have different digests, with the rows that differ."""
    for pair in pairs:
        if pair.a.same_form(pair.b) and pair.a.digest != pair.b.digest:
            return Pair(pair.a, pair.b, _rows(pair.a, pair.b))
    return None


def _rows(a: Line, b: Line) -> tuple[int, ...]:
    pairs = enumerate(zip(a.rows, b.rows, strict=False), start=a.first_row)
    return tuple(row for row, (one, other) in pairs if one != other)


def _numbers(rows: tuple[int, ...]) -> str:
    more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
    return ", ".join(map(str, rows[:10])) + more
