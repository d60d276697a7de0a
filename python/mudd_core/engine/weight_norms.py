"""Sums of squared weights in units that ranks never split, so that norms have the same bits for any world size."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, dtypes
from mudd_core.config.mesh_fit import UNIT

Squares = list[tuple[str, int, float]]  # (name, first element, sum of squares) of each part


def squares_of(parts: Iterable[StatePart]) -> Squares:
    """Return the squares of this rank's parts of the weights."""
    return [(part.name, part.begin, _squares(part.array)) for part in parts if part.array.size]


def norms_of(found: list[Squares]) -> dict[str, float]:
    """Return the norm of each weight by name from the squares of all ranks.

    A part that several ranks have is used once.
    """
    sums: dict[str, dict[int, float]] = {}
    for name, begin, squares in (one for squares_of_rank in found for one in squares_of_rank):
        sums.setdefault(name, {})[begin] = squares
    return {name: math.sqrt(math.fsum(parts.values())) for name, parts in sums.items()}


def _squares(values: Array) -> float:
    """Return the sum of squares, in float32 inside a unit, and exact over the units."""
    flat = dtypes.as_float32(values).reshape(-1)
    units, rest = np.split(flat, [flat.size // UNIT * UNIT])
    rows = units.reshape(-1, UNIT)
    return math.fsum([*np.einsum("ij,ij->i", rows, rows).tolist(), float(np.einsum("i,i->", rest, rest))])
