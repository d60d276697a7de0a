"""bench_executors.py: both executors on one batch, a table row with their times, and an error if their bits differ."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import pytest

from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_executors  # noqa: E402
from shapes import Shape  # noqa: E402

TINY = Shape("tiny", V=64, L=1, D=16, H=2, F=16, T=8, B=4)
ASKED = argparse.Namespace(threads=1, batch=4, rounds=1, precision="fp32")


@pytest.mark.parametrize("family", ["transformer_pp", "mixtral", "muddformer"])
def test_a_row_has_the_times_of_both(family: str) -> None:
    row = bench_executors.measure(TINY, family, ASKED)
    assert row["tokens"] == 32 and row["planned"] > 0 and row["immediate"] > 0
    fixed = row | {"planned": 0.002, "immediate": 0.003, "isa": "avx2"}
    assert f"| {family} | tiny | 32 | avx2 | 2.0 | 3.0 | 1.50 |" in bench_executors.table([fixed], ASKED)


def test_other_bits_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(planned: Any, immediate: Any) -> bool:
        moved = {name: np.nextafter(g, np.float32(9)) for name, g in immediate[1].items()}
        return real(planned, immediate) and real(planned, (immediate[0], moved))

    real = bench_executors.equal
    monkeypatch.setattr(bench_executors, "equal", off)
    with pytest.raises(SystemExit, match="different bits"):
        bench_executors.measure(TINY, "gpt2", ASKED)
