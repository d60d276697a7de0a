"""The loops of the NEON kernels in assembly: the parts that are multiply-adds, and no spills."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from neon_loops import TILES, Loop, faults, loops, loops_of
from places import ROOT

compiler = pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") or shutil.which("aarch64-linux-gnu-g++-12")),
    reason="the cross-compiler g++-12-aarch64-linux-gnu is not installed",
)

LISTING = """
0000000000000000 <void mudd::neon::(anonymous namespace)::micro<mudd::neon::(anonymous namespace)::FmaStep, 6, 1, false>(long)>:
       0:\tmov\tx1, #0x0
       4:\tldr\tq0, [sp, #16]
       8:\tfmla\tv1.4s, v0.4s, v2.s[0]
       c:\tsubs\tx1, x1, #0x1
      10:\tb.ne\t4 <void mudd::neon::micro(long)+0x4>  // b.any
      14:\tcbnz\tx0, 0 <void mudd::neon::micro(long)>
      18:\tret
"""  # noqa: E501


def test_an_innermost_loop_and_its_spill_are_found() -> None:
    (loop,) = loops(LISTING)
    assert TILES["by rows"] in loop.function
    assert (loop.multiply_adds, len(loop.instructions), loop.spills) == (1, 4, 1)


def test_a_spill_a_small_share_and_a_missing_loop_are_faults() -> None:
    good = [Loop(tile, ["fmla\tv1.4s"] * 24 + ["ldp\tq6, q7, [x6]"] * 6) for tile in TILES.values()]
    assert faults(good) == []
    spilled = Loop(good[0].function, [*good[0].instructions, "ldr\tq8, [sp, #16]"])
    assert "1 spills" in faults([spilled, good[1]])[0]
    thin = Loop(good[0].function, good[0].instructions + ["nop"] * 10)
    assert "by rows: 60.0% multiply-adds" in faults([thin, good[1]])[0]
    assert "expected a loop" in faults(good[:1])[0]


@compiler
def test_the_fp32_tile_is_multiply_adds_and_nothing_spills(tmp_path: Path) -> None:
    toolchain = ROOT / "cpp" / "cmake" / "aarch64.cmake"
    options = [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DMUDD_MPI=OFF", "-DMUDD_PYTHON=OFF"]
    command = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(tmp_path), *options]
    subprocess.run(command, check=True, capture_output=True)
    assert faults(loops_of(tmp_path)) == []
