"""The training loop alone, over a small exact engine: rows, stops, resumes, bad numbers, failed saves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_engine import FakeEngine, fake_assembly
from mudd_core import _core, checkpoint, signals
from mudd_core.config import Config, load_config
from mudd_core.errors import DivergedError, FormatError, SaveError, StopRequestedError, UserError
from mudd_core.progress import Progress
from mudd_core.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
TIMES = ("seconds", "tokens_per_second", "peak_share")


def config_of(*words: str) -> Config:
    base = [
        "train.steps=20",
        "train.save_every=5",
        "train.eval_every=8",
        "train.log_every=2",
        "optim.lr=0.05",
    ]
    return load_config("tiny.py", [*base, *words])


def make(path: Path | None, engine: FakeEngine | None = None, *words: str, **facts: Any) -> Trainer:
    return Trainer(config_of(*words), path, assemble=fake_assembly(engine or FakeEngine(), **facts))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The log without the times."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


@pytest.fixture(autouse=True)
def no_requests() -> None:
    _core.clear_requests()


def unbroken(path: Path, *words: str) -> str:
    with make(path, None, *words) as trainer:
        return trainer.fit().final_hash


def test_an_unbroken_run_leaves_what_it_promises(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with make(path) as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.steps, summary.stopped, summary.skipped_steps) == (20, 20, None, 0)
    assert json.loads((path / "summary.json").read_text())["final_hash"] == summary.final_hash
    assert json.loads((path / "config.json").read_text())["train"]["steps"] == 20
    assert checkpoint.list_steps(path / "checkpoints") == [10, 15, 20]  # train.keep_last = 3
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    train = [row for row in rows if "loss" in row]
    valid = [row for row in rows if "val_loss" in row]
    wanted = {"step", "tokens", "loss", "lr", "grad_norm", "tokens_per_second", "peak_share", "seconds"}
    assert all(set(row) == wanted for row in train)
    assert [row["step"] for row in train] == list(range(2, 21, 2))
    assert [row["tokens"] for row in train] == [row["step"] * 8 * 128 for row in train]
    assert [row["step"] for row in valid] == [8, 16, 20]
    assert all({"step", "val_loss", "val_bits_per_byte"} <= set(row) for row in valid)
    assert valid[0]["val_bits_per_byte"] == pytest.approx(valid[0]["val_loss"] / np.log(2) / 2)
    assert list((path / "tensorboard").glob("events.*"))


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

    def evaluate(batch: Any) -> tuple[float, int]:
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

    def late(step: int, lr: float, batch: Any) -> Any:
        report = plain(step, lr, batch)
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


def test_bad_numbers_are_skipped_counted_and_survive_a_resume(tmp_path: Path) -> None:
    bad = frozenset({2, 3, 9})
    with make(tmp_path / "whole", FakeEngine(bad=bad)) as trainer:
        whole = trainer.fit()
    assert whole.skipped_steps == 3
    for stop in (3, 10):
        with make(tmp_path / "parts", FakeEngine(bad=bad), f"train.stop_at={stop}") as trainer:
            trainer.fit()
    with make(tmp_path / "parts", FakeEngine(bad=bad)) as trainer:
        summary = trainer.fit()
    assert (summary.skipped_steps, summary.final_hash) == (3, whole.final_hash)
    rows = rows_of(tmp_path / "parts")
    assert rows == rows_of(tmp_path / "whole")
    (row,) = [row for row in rows if row["step"] == 4]
    assert row["loss"] is None and row["skipped"] is True


def test_ten_bad_steps_in_a_row_end_the_run_and_save_nothing(tmp_path: Path) -> None:
    bad = frozenset(range(7, 30))
    with (
        pytest.raises(
            DivergedError, match=r"10 updates in a row.*step 17.*blocks\.1\.ffn\.up.*step 15"
        ) as caught,
        make(tmp_path / "run", FakeEngine(bad=bad)) as trainer,
    ):
        trainer.fit()
    assert caught.value.exit_code == 76
    with (
        make(tmp_path / "run", FakeEngine(bad=bad)) as trainer,
        pytest.raises(DivergedError, match="step 17"),
    ):
        trainer.fit()  # the streak is part of the saved state


def test_a_resume_with_another_config_or_other_data_is_refused(tmp_path: Path) -> None:
    unbroken(tmp_path / "run")
    with pytest.raises(UserError, match=r"train\.steps: saved 20, asked 30"):
        make(tmp_path / "run", None, "train.steps=30")
    with pytest.raises(UserError, match="another data: saved 'fake', now 'other'"):
        make(tmp_path / "run", data="other")
    make(tmp_path / "run", None, "train.log_every=1").close()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["log_every"] == 1


def test_a_damaged_newest_step_is_passed_over_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = unbroken(tmp_path / "run")
    file = next((tmp_path / "run" / "checkpoints" / "step-20").glob("model-*"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    progress = Progress()
    with Trainer(
        config_of(), tmp_path / "run", progress=progress, assemble=fake_assembly(FakeEngine())
    ) as trainer:
        assert trainer.step_done == 15
        assert trainer.fit().final_hash == whole
    out = capsys.readouterr().out
    assert "step 20 passed over" in out and "resumed from step 15" in out


def test_nothing_that_verifies_is_an_error_not_a_new_start(tmp_path: Path) -> None:
    unbroken(tmp_path / "run", "train.keep_last=1")
    next((tmp_path / "run" / "checkpoints" / "step-20").glob("model-*")).write_bytes(b"x")
    with pytest.raises(FormatError, match="no checkpoint verifies"):
        make(tmp_path / "run", None, "train.keep_last=1")


def test_a_failed_save_is_told_and_only_a_last_one_ends_badly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = checkpoint.save

    def failing(at: set[int]) -> Any:
        def save(folder: Any, step: int, *args: Any, **named: Any) -> Path:
            if step in at:
                raise OSError(28, "No space left on device")
            return plain(folder, step, *args, **named)

        return save

    monkeypatch.setattr(checkpoint, "save", failing({10}))
    with make(tmp_path / "one") as trainer:
        trainer.fit()
    assert "save failed" in (tmp_path / "one" / "events.jsonl").read_text()
    monkeypatch.setattr(checkpoint, "save", failing({20}))
    with pytest.raises(SaveError, match="No space left") as caught, make(tmp_path / "two") as trainer:
        trainer.fit()
    assert caught.value.exit_code == 74
    assert checkpoint.list_steps(tmp_path / "two" / "checkpoints") == [5, 10, 15]


def test_in_a_notebook_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with make(None) as trainer:
        first = trainer.step()
        assert (first.step, first.tokens) == (1, 1024)
        assert first.lr == pytest.approx(0.05 / 20)
        assert first.loss > 0 and first.grad_norm > 0 and first.tokens_per_second > 0
        assert trainer.validate().targets == 60
        summary = trainer.fit()
        assert summary.step == 20
        _core.request_stop()
        with pytest.raises(StopRequestedError):
            trainer.step()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_held_while_it_lives(tmp_path: Path) -> None:
    with make(tmp_path / "run"), pytest.raises(UserError, match="in use"):
        make(tmp_path / "run")
    with pytest.raises(UserError):
        make(tmp_path / "run", None, "train.steps=21")
    make(tmp_path / "run").close()  # a refused start gave the lock back


def test_progress_lines_say_what_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with Trainer(config_of(), tmp_path, progress=progress, assemble=fake_assembly(FakeEngine())) as trainer:
        trainer.fit()
    lines = capsys.readouterr().out.splitlines()
    assert sum("ETA" in line for line in lines) == 10
    assert sum("bits per byte" in line for line in lines) == 3


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from fake_engine import FakeEngine, fake_assembly
from mudd_core import signals
from mudd_core.config import load_config
from mudd_core.trainer import Trainer
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
            [sys.executable, "-c", text, str(tmp_path / str(code)), str(ROOT / "tests" / "python")],
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
