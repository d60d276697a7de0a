"""bench_record.py: ratios of recorded steps to plain ones, by clock, and the line that is printed."""

from __future__ import annotations

import sys

import pytest

from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_record  # noqa: E402
from shapes import Shape  # noqa: E402

TINY = Shape("tiny", V=61, L=1, D=32, H=2, F=64, T=16, B=4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_each_round_has_a_ratio_by_clock(precision: str) -> None:
    found = bench_record.measure(TINY, precision, 2)
    assert list(found) == ["wall", "CPU"]
    for seconds, ratios in found.values():
        assert seconds > 0 and len(ratios) == 2 and min(ratios) > 0


def test_a_line_has_the_median_the_first_and_the_largest_ratio() -> None:
    said = bench_record.line("bf16", "CPU", 2.0, [1.5, 1.1, 1.2])
    assert said == "bf16  CPU   step 2.000 s  record / step: median 1.200, first 1.500, largest 1.500"
