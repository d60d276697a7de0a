"""Runs on rows of ready ids are killed at random steps: the batches and the end are those of an unbroken run."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from id_cases import words_made
from mudd_core.config import load_config
from mudd_core.run.loop.trainer import Trainer

STEPS, KILLS = 30, 3
PROGRAM = """
import os, signal, sys
from mudd_core.config import load_config
from mudd_core.run.loop.trainer import Trainer
with Trainer(load_config("tiny.py", sys.argv[3:]), sys.argv[1], progress=None) as trainer:
    take = trainer.engine.train_step

    def step(number, *arguments):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return take(number, *arguments)

    trainer.engine.train_step = step
    trainer.fit()
"""
MORE = {
    "pile": ("data.files_per_group=1", "data.buffer=3"),
    "megatron": (),
    "ids": (),
    "features": (),
    "synthetic": (),
}


def hashes(workdir: Path) -> list[tuple[int, str]]:
    rows = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [(row["step"], row["batch_hash"]) for row in rows if "batch_hash" in row]


@pytest.mark.parametrize("pipeline", MORE)
def test_a_killed_run_goes_on_with_the_same_batches(pipeline: str, tmp_path: Path) -> None:
    words = [
        *words_made(pipeline, tmp_path / "d"),
        *MORE[pipeline],
        f"train.steps={STEPS}",
        "train.log_every=1",
        "train.save_every=4",
        "log.batches=true",
    ]
    config = load_config("tiny.py", words)
    with Trainer(config, tmp_path / "whole", progress=None) as trainer:
        whole = trainer.fit().final_hash
    draw = random.Random(pipeline)
    for step in sorted(draw.sample(range(5, STEPS), KILLS)):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), str(step), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    with Trainer(config, tmp_path / "run", progress=None) as trainer:
        assert trainer.step_done >= 4
        assert trainer.fit().final_hash == whole
    found = hashes(tmp_path / "run")
    assert found == hashes(tmp_path / "whole")
    assert [step for step, _ in found] == list(range(1, STEPS + 1))
    assert len({name for _, name in found}) > 2  # the hash tells batches apart
