"""Stops, crashes and resumes of the training loop, with a small exact engine: bits and log entries do not change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import run_ends
from fake_engine import FakeEngine
from fake_runs import config_of, make, rows_of, unbroken
from mudd_core import _core, checkpoint
from mudd_core.run.loop import signals
from places import HELPERS
from run_ends import WAYS, End, Killer, Recipe, Run, require_same_end

# The steps before each end of one run, and train.save_every.
CHAINS = [
    *((way, [step], 5) for way in WAYS if way not in ("crash", "SIGKILL in a save") for step in (7, 8)),
    *(("train.stop_at", [step], 5) for step in (1, 4, 5, 19)),
    *(("crash", [step], 5) for step in range(20)),
    *(("crash", [step], 4) for step in (7, 8, 9)),
    *((way, [3, 8, 9, 16, 17], 5) for way in ("train.stop_at", "fit(steps)", "SIGKILL")),
    ("Ctrl-C", [6], 5),
]


def saving(every: int) -> Recipe:
    return partial(config_of, f"train.save_every={every}")


killer = run_ends.killer


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """Return unbroken runs by train.save_every."""
    return {every: Run(saving(every), "fake", tmp_path_factory.mktemp("whole")).finish() for every in (4, 5)}


@pytest.mark.parametrize(("way", "steps", "every"), CHAINS)
def test_no_end_at_any_step_changes_a_bit_or_a_row(
    way: str, steps: list[int], every: int, wholes: dict[int, Run], killer: Killer, tmp_path: Path
) -> None:
    parts = Run(saving(every), "fake", tmp_path / "parts", killer)
    require_same_end(parts, [End(way, step) for step in steps], wholes[every])


def test_a_stop_before_the_first_step_saves_nothing(tmp_path: Path) -> None:
    _core.request_stop()
    with make(tmp_path / "run") as trainer:
        assert trainer.fit().step == 0
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == []


def test_a_stop_during_validation_is_made_up_for(tmp_path: Path) -> None:
    unbroken(tmp_path / "whole")
    engine = FakeEngine()
    plain = engine.evaluate

    def evaluate(batch: Any) -> tuple[float, int, int]:
        _core.request_stop()
        return plain(batch)

    engine.evaluate = evaluate  # type: ignore[method-assign]
    with make(tmp_path / "parts", engine) as trainer:
        assert trainer.fit().step == 8
    assert not [row for row in rows_of(tmp_path / "parts") if "val_loss" in row]
    _core.clear_requests()
    with make(tmp_path / "parts") as trainer:
        trainer.fit()
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")


def test_signals_stop_and_save(tmp_path: Path) -> None:
    def send(step: int) -> None:
        if step in (3, 11):
            os.kill(os.getpid(), signal.SIGUSR2 if step == 3 else signal.SIGTERM)

    with signals.handlers(), make(tmp_path / "run", FakeEngine(before_step=send)) as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.stopped) == (11, "SIGTERM")
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == [5, 10, 11]
    assert not _core.stop_requested()


def test_ctrl_c_after_the_update_does_not_repeat_the_step() -> None:
    engine = FakeEngine()
    plain = engine.train_step

    def late(*where: Any, done: int | None = None) -> Any:
        report = plain(*where, done=done)
        os.kill(os.getpid(), signal.SIGINT)
        return report

    engine.train_step = late  # type: ignore[method-assign]
    with make(None, engine) as trainer:
        with pytest.raises(KeyboardInterrupt):
            trainer.step()
        assert trainer.step_done == 1
        engine.train_step = plain  # type: ignore[method-assign]
        assert trainer.step().step == 2


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from fake_engine import FakeEngine, fake_assembly
from mudd_core.run.loop import signals
from mudd_core.config import load_config
from mudd_core.run.loop.trainer import Trainer
config = load_config("tiny.py", ["train.steps=100000", "train.log_every=1000", "data.path=x"])
assembly = fake_assembly(FakeEngine(seconds=0.02))
with signals.handlers(), Trainer(config, sys.argv[1], assemble=assembly) as trainer:
    print("go", flush=True)
    print(trainer.fit().stopped, flush=True)
sys.exit(75)
"""


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    stuck = CHILD.replace(
        "seconds=0.02", "before_step=lambda s: __import__('time').sleep(60) if s == 3 else None"
    )
    for text, code in ((CHILD, 75), (stuck, 130)):
        with subprocess.Popen(
            [sys.executable, "-c", text, str(tmp_path / str(code)), str(HELPERS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "go\n"
            assert child.stderr is not None
            child.send_signal(signal.SIGINT)
            while "stop requested" not in child.stderr.readline():  # until the request has arrived
                assert child.poll() is None
            if code == 130:
                child.send_signal(signal.SIGINT)
            assert child.wait(timeout=10) == code
            if code == 75:
                assert child.stdout.readline() == "SIGINT\n"
