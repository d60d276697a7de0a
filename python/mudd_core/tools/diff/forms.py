"""The forms of two recorded steps: their weights and batches must have equal shapes, or no value can be compared."""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.fingerprint import Line, Pair, StepRecord


def other_forms(one: StepRecord, two: StepRecord) -> str:
    """Return why two steps cannot be compared value by value; empty if they can."""
    if one.header.precision != two.header.precision:
        return f"A computes in {one.header.precision}, and B in {two.header.precision}"
    for name, left, right in _weights(one, two):
        if left is None or right is None:
            return f"only {'A' if right is None else 'B'} has the weight {name}"
        if left.shape != right.shape:
            return f"the weight {name} has the shape {_shape(left)} in A and {_shape(right)} in B"
    left_rows, right_rows = batch_rows(one), batch_rows(two)
    for value in left_rows.keys() & right_rows.keys():
        counts = len(left_rows[value]), len(right_rows[value])
        if counts[0] != counts[1]:
            return f"the batches have {counts[0]:,} sequences in A and {counts[1]:,} in B"
    lengths = _lengths(one), _lengths(two)
    if lengths[0] != lengths[1]:
        return f"the sequences have {lengths[0]:,} tokens in A and {lengths[1]:,} in B"
    return ""


def other_rows(one: StepRecord, two: StepRecord) -> tuple[int, ...]:
    """Return the sequences of the batch whose ids differ, from 0, also if the micro-batches have other sizes."""
    left, right = batch_rows(one), batch_rows(two)
    found = {
        row
        for value in left.keys() & right.keys()
        for row, digest in left[value].items()
        if right[value].get(row) != digest
    }
    return tuple(sorted(found))


def alone_before(pair: Pair, one: StepRecord, two: StepRecord) -> tuple[Line | None, Line | None]:
    """Return, of each record, the first value before the pair that the other one does not have; None without one.

    Micro-batches and recomputed values are a matter of the plan and do not count.
    """
    return _alone(pair.a, one, two), _alone(pair.b, two, one)


def _alone(last: Line, record: StepRecord, other: StepRecord) -> Line | None:
    known = {line.key._replace(rank=0, run=0) for line in other.lines}
    for line in record.lines:
        if line == last:
            return None
        if line.key.stage != "recompute" and line.key._replace(rank=0, run=0) not in known:
            return line
    return None


def batch_rows(record: StepRecord) -> dict[str, dict[int, str]]:
    """Return the digest of each sequence of the batch, by value (inputs, targets) and row from 0."""
    found: dict[str, dict[int, str]] = {}
    lines = [line for line in record.lines if line.key.stage == "data"]
    first = min((line.first_row for line in lines), default=0)  # a record counts the samples of the whole run
    for line in lines:
        rows = found.setdefault(line.key.value, {})
        rows.update(enumerate(line.rows, start=line.first_row - first))
    return found


def _weights(one: StepRecord, two: StepRecord) -> Iterator[tuple[str, Line | None, Line | None]]:
    left, right = _states(one), _states(two)
    for name in dict.fromkeys((*left, *right)):
        yield name, left.get(name), right.get(name)


def _states(record: StepRecord) -> dict[str, Line]:
    return {
        line.key.place: line
        for line in record.lines
        if line.key.stage == "state" and line.key.value == "weight"
    }


def _lengths(record: StepRecord) -> int:
    shapes = (line.shape for line in record.lines if line.key.stage == "data" and line.key.value == "inputs")
    return next((shape[-1] for shape in shapes), 0)


def _shape(line: Line) -> str:
    return f"[{', '.join(map(str, line.shape))}]"
