"""Op cases of ops.ngram_ids: orders, sizes of the table, seeds and both borders of documents."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case
from reference.numpy_ngrams import ngram_ids


def ngram_case(number: int, has_segments: bool, **options: int) -> Case:
    """Return a case with ids below 9, so that token 4 ends several documents if it is the option `end`."""
    draw = np.random.default_rng(number)
    ids = draw.integers(0, 9, (3, 11)).astype(np.int32)
    segments = np.sort(draw.integers(0, 3, (3, 11)).astype(np.int32)) if has_segments else None

    def forward(ids: Any, segments: Any) -> Any:
        return ngram_ids(ids, segments, **options)

    return Case("ngram_ids", [ids, segments], dict(options), forward, lambda dy, *inputs: (None, None))


def ngram_cases() -> list[Case]:
    """Return the cases of the op."""
    return [
        ngram_case(1, False),
        ngram_case(2, True, order=3, rows=1000),
        ngram_case(3, False, order=3, rows=77, seed=5, end=4),
        ngram_case(4, True, order=1, rows=2**31 - 1, end=4),
        ngram_case(5, True, order=2, rows=1),
    ]
