"""Rows of a long series that a chart can show: of each column of pixels the least and the greatest value."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mudd_core.base.types import Float64, Int64

COLUMNS = 480  # of a chart; a wider one would show the same


def kept_rows(across: Float64, values: Float64, columns: int = COLUMNS) -> Int64:
    """Row numbers, ascending: the first and the last, and the extremes of each column. across: ascending.

    Of values that are not finite one a column is kept where it has no others: the line is broken there.
    """
    if len(values) <= 2 * columns:
        return np.arange(len(values), dtype=np.int64)
    edges = np.searchsorted(across, np.linspace(across[0], across[-1], columns + 1))
    edges[-1] = len(values)
    finite = np.isfinite(values)
    kept = [0, len(values) - 1]
    for begin, end in pairwise(edges):
        rows = begin + np.flatnonzero(finite[begin:end])
        if rows.size:
            kept += [rows[values[rows].argmin()], rows[values[rows].argmax()]]
        elif begin < end:
            kept.append(begin)
    return np.unique(np.array(kept, np.int64))
