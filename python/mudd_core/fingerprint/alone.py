"""The first weight or op that only one of two models has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mudd_core.fingerprint.difference import Difference
from mudd_core.fingerprint.lines import Line

_STAGES = ("state", "forward")  # without gradients: a model with frozen weights computes fewer of them


@dataclass(frozen=True)
class Alone:
    """A value that only one model has, or has in this shape. common: the count of values before it that both have.

    other: the value of the other model at the same place, of another op or shape; None if it has none.
    """

    line: Line
    only_in: Literal["a", "b"]
    common: int
    other: Line | None

    def difference(self, losses: tuple[float, float]) -> Difference:
        """Return the difference with all elements of the value. losses: of both models."""
        line = self.line
        return Difference(
            place=line.place,
            op=line.op,
            stage=line.key.stage,
            value=line.key.value,
            title=self._title(),
            shape=line.shape,
            dtype=line.dtype,
            count=math.prod(line.shape),
            first_index=(),
            values=(math.nan, math.nan),
            ulps=math.inf,
            losses=losses,
            only_in=self.only_in,
        )

    def _title(self) -> str:
        title = model_title(self.line)
        if self.other is None:
            return f"{title}, which only {self.only_in} has"
        there = "b" if self.only_in == "a" else "a"
        have = self.other.form() if self.other.op == self.line.op else self.other.op
        return f"{title}, {self.line.form()} in {self.only_in}; {there} has {have} there"


def first_alone(a: Sequence[Line], b: Sequence[Line]) -> Alone | None:
    """Return the first weight or forward value, in the order of the step, that only one of two models has.

    Values of another shape count as different. None if both models have the same ones.
    """
    of_a, of_b = _first(a, b, "a"), _first(b, a, "b")
    if of_a is None or of_b is None:
        return of_a or of_b
    return of_a if of_a.common <= of_b.common else of_b


def _first(lines: Sequence[Line], others: Sequence[Line], only_in: Literal["a", "b"]) -> Alone | None:
    have, common = {(line.key, line.shape) for line in others}, 0
    for line in lines:
        if (line.key, line.shape) in have:
            common += 1
        elif line.key.stage in _STAGES:
            there = (one for one in others if _place(one) == _place(line))
            return Alone(line, only_in, common, next(there, None))
    return None


def _place(line: Line) -> tuple[str, str, str]:
    return line.key.stage, line.place, line.key.value


def model_title(line: Line) -> str:
    """Return the title of a value of a model: a weight has no step."""
    return f"the weight {line.key.place}" if line.key.stage == "state" else line.title()
