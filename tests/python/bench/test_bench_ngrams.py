"""bench_ngrams.py: each model takes its steps in turn, and the line that is printed."""

from __future__ import annotations

import sys
from typing import Any, cast

from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_ngrams  # noqa: E402
from shapes import Shape  # noqa: E402

TINY = Shape("tiny", V=61, L=2, D=32, H=2, F=64, T=16, B=4)


def test_each_model_has_its_steps() -> None:
    found = bench_ngrams.measure(TINY, [50, 5000], "1,2", "0-1", 2)
    assert [one.rows for one in found] == [0, 50, 5000]
    for one in found:
        assert len(one.wall) == len(one.cpu) == len(one.faults) == 3 and min(one.wall) > 0
        assert ("ngrams.rows" in one.engine.model.parameters) == (one.rows > 0)


def test_a_line_has_medians_of_pairs_after_the_first_step() -> None:
    none = cast(Any, None)
    plain = bench_ngrams.Measured(0, none, [9, 1, 2, 4], [9, 1, 2, 4], [0, 0, 0, 0])
    table = bench_ngrams.Measured(40_000_000, none, [7, 2, 3, 4], [7, 1, 3, 8], [800, 4, 5, 6])
    assert bench_ngrams.line(table, plain) == (
        "rows  40,000,000  step 3.000 s, ratio wall 1.500, CPU 1.500; first 7.000 s, faults 5"
    )
