"""Rows of a long series that a chart can show: of each column of pixels the least and the greatest value."""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Float64, Int64

COLUMNS = 480  # of a chart; a wider one would show the same


def kept_rows(across: Float64, values: Float64, columns: int = COLUMNS) -> Int64:
    """Row numbers, ascending: the first and the last, and the extremes of each column. across: ascending.

    Of values that are not finite one a column is kept where it has no others: the line is broken there.
    """
    if len(values) <= 2 * columns:
        return np.arange(len(values), dtype=np.int64)
    low, high = across[0], across[-1]
    column = np.minimum(((across - low) / ((high - low) or 1.0) * columns).astype(np.int64), columns - 1)
    finite = np.isfinite(values)
    # By column, then value; what is not finite comes after the greatest.
    order = np.lexsort((np.where(finite, values, 0.0), ~finite, column))
    first = np.searchsorted(column[order], np.arange(columns))
    counts = np.bincount(column, weights=finite, minlength=columns).astype(np.int64)
    used = np.bincount(column, minlength=columns) > 0
    least, greatest = first[used], first[used] + np.maximum(counts[used] - 1, 0)
    return np.unique(np.concatenate([[0, len(values) - 1], order[least], order[greatest]]))
