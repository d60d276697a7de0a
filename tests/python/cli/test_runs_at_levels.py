"""Runs that change the instruction set level midway have the same bits and tokens as the unbroken run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from level_workers import levels
from places import ROOT
from tiny_run import TinyRun

STEPS = ("train.steps=30", "train.save_every=10", "train.eval_every=15")
LEVELS = levels()


@pytest.fixture(scope="module")
def whole(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return the unbroken run, at the CPU's own level."""
    return TinyRun(tmp_path_factory.mktemp("whole") / "run", tiny_text, STEPS).finished()


@pytest.mark.parametrize("level", LEVELS)
def test_a_resume_at_another_level_has_the_bits_of_the_unbroken_run(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, level: str
) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, (*STEPS, "train.stop_at=13"))
    assert run.finish(MUDD_MAX_ISA=level) == 75, run.tail
    run.words = STEPS
    run.finished()
    assert run.same_as(whole)
    assert "the bits of this run change" not in run.output


def test_kills_at_every_level_have_the_bits_of_the_unbroken_run(
    whole: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, STEPS)
    for place, level in enumerate(LEVELS[::-1]):
        process = run.start(MUDD_MAX_ISA=level)
        run.wait_for_step(process, min(11 + 5 * place, 29))
        process.kill()
        process.wait()
    assert run.finish(MUDD_MAX_ISA=LEVELS[0]) == 0, run.tail
    assert run.same_as(whole)


def test_every_level_writes_the_same_tokens(whole: TinyRun) -> None:
    texts = set()
    for level in LEVELS:
        command = [sys.executable, str(ROOT / "launch.py"), "sample", f"--workdir={whole.workdir}"]
        done = subprocess.run(
            [*command, "--prompt=ma", "--max-tokens=60"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "MUDD_MAX_ISA": level},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(done.stdout)
    assert len(texts) == 1 and len(texts.pop()) > 40
