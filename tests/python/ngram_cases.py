"""Op cases of ops.ngram_rows: orders, sizes of the table, seeds and both borders of documents."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case
from reference.numpy_ngrams import ngram_rows, ngram_rows_backward


def sequences(draw: np.random.Generator, has_segments: bool) -> list[Any]:
    """Return ids below 9, so that token 4 ends several documents if it is the option `end`, and segments or None."""
    ids = draw.integers(0, 9, (3, 11)).astype(np.int32)
    return [ids, np.sort(draw.integers(0, 3, (3, 11)).astype(np.int32)) if has_segments else None]


def rows_case(number: int, has_segments: bool, rows: int, width: int, **options: Any) -> Case:
    """Return a case of ops.ngram_rows."""
    draw = np.random.default_rng(number)
    ids, segments = sequences(draw, has_segments)
    table = draw.standard_normal((rows, width)).astype(np.float32)

    def forward(ids: Any, table: Any, segments: Any) -> Any:
        return ngram_rows(ids, table, segments, **options)

    def backward(dy: Any, ids: Any, table: Any, segments: Any) -> Any:
        return None, ngram_rows_backward(dy, ids, table, segments, **options), None

    return Case("ngram_rows", [ids, table, segments], dict(options), forward, backward)


def ngram_cases() -> list[Case]:
    """Return all cases."""
    return [
        rows_case(6, False, 1000, 17),
        rows_case(7, True, 40, 8, orders="1,2,3", seed=5),
        rows_case(8, True, 70, 33, orders="3,1", end=4),
        rows_case(9, False, 1, 3, orders="2", end=4),
    ]
