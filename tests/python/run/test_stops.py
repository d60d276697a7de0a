"""Stops, crashes and resumes of the training loop, over a small exact engine: no bit and no row changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine
from fake_runs import make, rows_of, unbroken
from mudd_core import _core, checkpoint
from mudd_core.run.loop import signals
from places import HELPERS


@pytest.fixture(autouse=True)
def no_requests() -> None:
    _core.clear_requests()


@pytest.mark.parametrize("stops", [[1], [4], [5], [7], [8], [19], [3, 8, 9, 16, 17]])
def test_stops_and_resumes_change_no_bit_and_no_row(tmp_path: Path, stops: list[int]) -> None:
    whole = unbroken(tmp_path / "whole")
    for stop in stops:
        with make(tmp_path / "parts", None, f"train.stop_at={stop}") as trainer:
            summary = trainer.fit()
            assert (summary.step, summary.stopped) == (stop, "train.stop_at")
    with make(tmp_path / "parts") as trainer:
        assert trainer.step_done == stops[-1]
        assert trainer.fit().final_hash == whole
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")


@pytest.mark.parametrize(("at", "every"), [(at, 5) for at in range(20)] + [(at, 4) for at in range(7, 10)])
def test_a_crash_at_any_step_resumes_from_the_newest_save(tmp_path: Path, at: int, every: int) -> None:
    def crash(step: int) -> None:
        if step == at:
            raise ZeroDivisionError

    saving = f"train.save_every={every}"
    whole = unbroken(tmp_path / "whole", saving)
    engine = FakeEngine(before_step=crash)
    with pytest.raises(ZeroDivisionError), make(tmp_path / "parts", engine, saving) as trainer:
        trainer.fit()
    with make(tmp_path / "parts", None, saving) as trainer:
        assert trainer.step_done == at // every * every
        assert trainer.fit().final_hash == whole
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    events = [json.loads(line) for line in (tmp_path / "parts" / "events.jsonl").read_text().splitlines()]
    assert [e["step"] for e in events if e["event"] == "resumed"] == [at // every * every][: at >= every]


def test_a_stop_inside_a_step_drops_it_and_saves_the_last_whole_one(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")
    engine = FakeEngine(before_step=lambda step: _core.request_stop() if step == 7 else None)
    with make(tmp_path / "parts", engine) as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.stopped) == (7, "request")
    assert checkpoint.list_steps(tmp_path / "parts" / "checkpoints")[-1] == 7
    _core.clear_requests()
    with make(tmp_path / "parts") as trainer:
        assert trainer.fit().final_hash == whole
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")


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


def test_ctrl_c_in_a_notebook_ends_the_step_saves_and_is_an_interrupt(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")

    def press(step: int) -> None:
        if step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), make(tmp_path / "run", FakeEngine(before_step=press)) as trainer:
        trainer.fit()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and not _core.stop_requested()
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == [5, 6]
    with make(tmp_path / "run") as trainer:
        assert trainer.fit().final_hash == whole


def test_ctrl_c_after_the_update_does_not_repeat_the_step() -> None:
    engine = FakeEngine()
    plain = engine.train_step

    def late(*where: Any) -> Any:
        report = plain(*where)
        os.kill(os.getpid(), signal.SIGINT)
        return report

    engine.train_step = late  # type: ignore[method-assign]
    with make(None, engine) as trainer:
        with pytest.raises(KeyboardInterrupt):
            trainer.step()
        assert trainer.step_done == 1
        engine.train_step = plain  # type: ignore[method-assign]
        assert trainer.step().step == 2


def test_a_stop_file_stops_once(tmp_path: Path) -> None:
    def touch(step: int) -> None:
        if step == 5:
            (tmp_path / "run" / "STOP").touch()

    with make(tmp_path / "run", FakeEngine(before_step=touch)) as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.stopped) == (6, "STOP file")
    with make(tmp_path / "run") as trainer:
        assert trainer.fit().stopped is None


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
            while "stop requested" not in child.stderr.readline():  # until it has been seen
                assert child.poll() is None
            if code == 130:
                child.send_signal(signal.SIGINT)
            assert child.wait(timeout=10) == code
            if code == 75:
                assert child.stdout.readline() == "SIGINT\n"
