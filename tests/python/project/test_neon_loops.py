"""The loops of the NEON kernels in assembly: the parts that are multiply-adds, and no spills."""

from __future__ import annotations

import os
import shutil

import pytest

import aarch64_suites
from neon_loops import TILES, Loop, faults, loops, loops_of

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


def missing() -> None:
    """Skip the test without the cross-compiler, or fail it if MUDD_TEST_AARCH64=required."""
    if any(map(shutil.which, aarch64_suites.COMPILERS)):
        return
    text = (
        "no cross-compiler for 64-bit ARM; ./run soak aarch64 --quick installs g++-aarch64-linux-gnu (Debian)"
    )
    if os.environ.get("MUDD_TEST_AARCH64") == "required":
        pytest.fail(text)
    pytest.skip(text)


def test_the_fp32_tile_is_multiply_adds_and_nothing_spills() -> None:
    missing()
    aarch64_suites.configured()
    assert faults(loops_of(aarch64_suites.ARM)) == []


@pytest.mark.parametrize("required", ["", "required"])
def test_without_a_compiler_a_required_test_fails(required: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("MUDD_TEST_AARCH64", required)
    with pytest.raises(
        pytest.fail.Exception if required else pytest.skip.Exception, match="no cross-compiler"
    ):
        missing()
