"""The training loop alone, with a small exact engine: log entries, bad values, damage, failed saves, rejected
starts.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of, make, rows_of, unbroken
from mudd_core import _core, checkpoint
from mudd_core.base.errors import DivergedError, FormatError, SaveError, StopRequestedError, UserError
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.progress import Progress


@contextmanager
def full_disk() -> Iterator[Callable[[bool], None]]:
    """Return a function that fills the disk or frees it; a full disk is simulated by a limit on the size of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda full: resource.setrlimit(resource.RLIMIT_FSIZE, (0 if full else soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
    assert all(set(row) - {"load"} == wanted | {"phases"} for row in train)
    assert [row["step"] for row in train] == list(range(2, 21, 2))
    assert [row["tokens"] for row in train] == [row["step"] * 8 * 128 for row in train]
    assert [row["step"] for row in valid] == [8, 16, 20]
    assert all({"step", "val_loss", "val_bits_per_byte"} <= set(row) for row in valid)
    assert valid[0]["val_bits_per_byte"] == pytest.approx(valid[0]["val_loss"] / np.log(2) / 2)
    assert list((path / "tensorboard").glob("events.*"))


def test_updates_wait_for_no_weights_where_no_log_reads_them(tmp_path: Path) -> None:
    engine = FakeEngine()
    with make(tmp_path / "run", engine) as trainer:
        trainer.fit()
    assert engine.settled == []


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


def test_debugging_names_the_node_of_every_bad_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(bad=frozenset({2}))
    config = config_of("train.debug_nonfinite=true", "train.steps=4")
    with Trainer(
        config, tmp_path / "run", assemble=fake_assembly(engine), progress=Progress(quiet=False)
    ) as trainer:
        assert trainer.fit().skipped_steps == 1
    assert "skipped; the first non-finite value is in blocks.1.ffn.up" in capsys.readouterr().out


def test_ten_bad_steps_in_a_row_end_the_run_and_save_nothing(tmp_path: Path) -> None:
    bad = frozenset(range(7, 30))
    with (
        pytest.raises(
            DivergedError, match=r"10 updates in a row.*step 17.*blocks\.1\.ffn\.up.*step 5"
        ) as caught,
        make(tmp_path / "run", FakeEngine(bad=bad), "train.rewind=0") as trainer,
    ):
        trainer.fit()
    assert caught.value.exit_code == 76
    with (
        make(tmp_path / "run", FakeEngine(bad=bad), "train.rewind=0") as trainer,
        pytest.raises(DivergedError, match="step 17"),
    ):
        trainer.fit()  # the streak is part of the saved state


def test_a_streak_of_bad_steps_drives_no_checkpoint_out(tmp_path: Path) -> None:
    engine = FakeEngine(bad=frozenset(range(7, 30)))
    with (
        pytest.raises(DivergedError),
        make(tmp_path, engine, "train.save_every=2", "train.keep_last=1", "train.rewind=0") as trainer,
    ):
        trainer.fit()
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [6]


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
    assert "step 20 passed over" in out and "resumes at step 15" in out


def test_nothing_that_verifies_is_an_error_not_a_new_start(tmp_path: Path) -> None:
    unbroken(tmp_path / "run", "train.keep_last=1")
    next((tmp_path / "run" / "checkpoints" / "step-20").glob("model-*")).write_bytes(b"x")
    with pytest.raises(FormatError, match="no checkpoint verifies"):
        make(tmp_path / "run", None, "train.keep_last=1")


def test_another_runs_newer_step_costs_none_of_this_runs(tmp_path: Path) -> None:
    one = ("train.keep_last=1",)
    unbroken(tmp_path / "other")
    with make(tmp_path / "run", None, "train.stop_at=5", *one) as trainer:
        trainer.fit()
    copied = tmp_path / "run" / "checkpoints" / "step-20"
    shutil.copytree(tmp_path / "other" / "checkpoints" / "step-20", copied)
    with make(tmp_path / "run", None, "train.stop_at=12", *one) as trainer:
        assert trainer.step_done == 5
        trainer.fit()
    with make(tmp_path / "run", None, *one) as trainer:
        assert trainer.step_done == 12


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


def test_a_full_disk_costs_saves_but_neither_the_run_nor_rows(tmp_path: Path) -> None:
    unbroken(tmp_path / "whole")
    with full_disk() as fill:

        def before_step(step: int) -> None:
            if step in (6, 12):
                fill(step == 6)

        with make(tmp_path / "run", FakeEngine(before_step=before_step)) as trainer:
            trainer.fit()
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == [5, 15, 20]
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    names = ["started", "saved", "save failed", "saved", "saved", "finished"]
    assert [event["event"] for event in events] == names
    assert [event["step"] for event in events[1:]] == [5, 10, 15, 20, 20]


@pytest.mark.parametrize("full_from", [6, 19, 20])
def test_a_disk_that_stays_full_ends_the_run_with_74(tmp_path: Path, full_from: int) -> None:
    class Engine(FakeEngine):
        def evaluate(self, batch: Any) -> tuple[float, int, int]:
            fill(trainer.step_done >= full_from)  # at 20 the disk is full after the last save
            return super().evaluate(batch)

    with full_disk() as fill:
        engine = Engine(before_step=lambda step: fill(step >= full_from))
        with make(tmp_path / "run", engine) as trainer, pytest.raises(SaveError) as caught:
            trainer.fit()
    assert caught.value.exit_code == 74
    left = {6: [5], 19: [5, 10, 15], 20: [10, 15, 20]}[full_from]
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == left
    assert not (tmp_path / "run" / "summary.json").exists()
    whole = unbroken(tmp_path / "whole")
    with make(tmp_path / "run") as trainer:
        assert trainer.step_done == left[-1]
        assert trainer.fit().final_hash == whole
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")


def test_a_start_behind_the_last_save_ends_with_the_same_summary(tmp_path: Path) -> None:
    with make(tmp_path / "run") as trainer:
        first = trainer.fit()
    (tmp_path / "run" / "summary.json").unlink()  # as if killed before it was written
    with make(tmp_path / "run") as trainer:
        again = trainer.fit()
    assert first.loss is not None and first.val_loss is not None
    assert dataclasses.replace(again, seconds=first.seconds) == first


def test_a_validation_on_demand_leaves_the_runs_rows_alone(tmp_path: Path) -> None:
    with make(tmp_path / "run") as trainer:
        for _ in range(8):
            trainer.step()
        asked = trainer.validate()
        trainer.fit()
    rows = [row for row in rows_of(tmp_path / "run") if "val_loss" in row]
    assert [row["step"] for row in rows] == [8, 16, 20]
    assert (asked.step, asked.val_loss) == (8, rows[0]["val_loss"])


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
    make(tmp_path / "run").close()  # a rejected start released the lock


def test_progress_lines_say_what_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with Trainer(config_of(), tmp_path, progress=progress, assemble=fake_assembly(FakeEngine())) as trainer:
        trainer.fit()
    lines = capsys.readouterr().out.splitlines()
    assert sum("ETA" in line for line in lines if line.startswith("step")) == 10
    assert sum("bits per byte" in line for line in lines) == 3
