"""Start from weights with fewer rows of n-grams, or with none: the new model computes the same logits.

The row of an n-gram is floor(u R) for a fraction u (docs/maths/ngrams.md, 1). In a table of k R rows the n-grams of
row r have the rows k r to k r + k - 1. Each of them starts as a copy of row r.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.models.ngrams import TABLE


def is_new(name: str, stored: Collection[str]) -> bool:
    """Return True for a parameter of n-grams in a model whose source has no table."""
    return TABLE not in stored and (name == TABLE or ".ngrams." in name)


def require_multiple(rows: int, stored: int) -> None:
    """Raise UserError unless a table of `stored` rows can grow to `rows`."""
    if rows % stored:
        raise UserError(
            f"[start] model.ngram_rows: expected a multiple of the {stored} rows of the loaded table, got {rows}"
        )


def grown_rows(old: Array, rows: int) -> Array:
    """Return a table, or the state of its rows, with this number of rows, a multiple of the old one."""
    require_multiple(rows, old.shape[0])
    return np.repeat(old, rows // old.shape[0], axis=0)
