"""The size of a difference: elements, the first index, units of the last place, and its growth at the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Array
from mudd_core.fingerprint.compared import Pair
from mudd_core.fingerprint.ulps import WHOLE, as_float64, coarser, scaled_ulps, steps_between


@dataclass(frozen=True, repr=False)
class Difference:
    """The first value at which two steps or models differ.

    place: such as "blocks.0.attn", or the name of a weight. op, stage, value: what computed it. count: elements that
    differ, of `size`. first_index: the index of the first one. values: both values there. ulps: the largest difference
    in units of the last place. losses: of both steps. rows: sequences of the batch that differ, if the data do.
    only_in: "a" or "b" if only this model has such a value; values are then NaN, and ulps is infinite.
    """

    place: str
    op: str
    stage: str
    value: str
    title: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    first_index: tuple[int, ...]
    values: tuple[float, float]
    ulps: float
    losses: tuple[float, float]
    rows: tuple[int, ...] = ()
    only_in: str = ""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def loss_growth(self) -> float:
        """The relative difference of the losses; NaN if a loss is not known."""
        a, b = self.losses
        return abs(a - b) / max(abs(a), abs(b)) if max(abs(a), abs(b)) > 0 else abs(a - b)

    def __repr__(self) -> str:
        index = f" at [{', '.join(map(str, self.first_index))}]" if self.first_index else ""
        unit = "unit" if self.ulps == 1 else "units"
        lines = [
            f"first difference: {self.title}",
            f"  type      {self.dtype} [{', '.join(map(str, self.shape))}]",
        ]
        if not self.only_in:
            lines += [
                f"  elements  {self.count:,} of {self.size:,} differ",
                f"  first     {self.values[0]:.9g} and {self.values[1]:.9g}{index}",
                f"  largest   {self.ulps:,.6g} {unit} of the last place",
            ]
        if self.rows:
            lines.append(
                f"  batch     sequences {', '.join(map(str, self.rows[:10]))}{' ...' * (len(self.rows) > 10)}"
            )
        if not math.isnan(self.loss_growth):
            growth = f"relative difference {self.loss_growth:.2g}" if self.loss_growth else "equal"
            lines.append(f"  loss      {self.losses[0]:.9g} and {self.losses[1]:.9g}, {growth}")
        return "\n".join(lines)


def measure(
    pair: Pair,
    a: Array,
    b: Array,
    losses: tuple[float, float] = (math.nan, math.nan),
    ulp: float = 0,
    unit: str | None = None,
    title: str = "",
) -> Difference:
    """Return the size of the difference between the arrays of a pair; bfloat16 as uint16.

    Only elements that differ by more than `ulp` ulps are included. Without a unit and for arrays of one type, the
    distance of two elements is the number of representable values between them. Otherwise it is their difference in
    ulps of the type `unit` (by default the coarser one), at the scale of the values (scaled_ulps). Integers differ if
    they are not equal. title: replaces the title of the line.
    """
    line, x, y = pair.a, as_float64(a, pair.a.dtype), as_float64(b, pair.b.dtype)
    dtype = coarser(pair.a.dtype, pair.b.dtype)
    if dtype in WHOLE:
        ulps, differs = np.abs(x - y), x != y
    elif unit is not None or pair.a.dtype != pair.b.dtype:
        ulps = scaled_ulps(x, y, unit or dtype)
        differs = ulps > ulp
    else:
        ulps = steps_between(a, b, dtype)
        differs = (ulps > ulp) | ((np.signbit(x) != np.signbit(y)) & (ulp == 0))
    first = int(np.argmax(differs)) if differs.any() else 0
    return Difference(
        place=line.place,
        op=line.op,
        stage=line.key.stage,
        value=line.key.value,
        title=title or line.title(),
        shape=line.shape,
        dtype=pair.a.dtype if pair.a.dtype == pair.b.dtype else f"{pair.a.dtype} and {pair.b.dtype}",
        count=int(differs.sum()),
        first_index=tuple(int(at) for at in np.unravel_index(first, x.shape)) if x.shape else (),
        values=(float(x.ravel()[first]), float(y.ravel()[first])) if x.size else (math.nan, math.nan),
        ulps=float(ulps.max()) if ulps.size else 0.0,
        losses=losses,
        rows=pair.rows,
    )
