"""The spike rule: the updates that it skips, their absence of effects, and its part of the saved state."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fake_engine import FakeEngine, Report
from fake_runs import make, rows_of
from mudd_core import checkpoint
from mudd_core.config import TrainConfig
from mudd_core.run.loop.update_guard import WINDOW, UpdateGuard

WORDS = ("train.steps=160", "train.save_every=40", "train.eval_every=0")
HIGH = frozenset({20, 150})  # the first one comes before the window is full


def test_a_spike_is_skipped_once_the_window_is_full_and_touches_nothing(tmp_path: Path) -> None:
    engine = FakeEngine(high=HIGH)
    with make(tmp_path, engine, *WORDS, "train.spike=skip", "train.log_every=1") as trainer:
        for _ in range(150):
            trainer.step()
        before = (engine.w.copy(), engine.m.copy())
        record = trainer.step()
        assert record.skipped and record.loss > 0
        assert np.array_equal(before[0], engine.w) and np.array_equal(before[1], engine.m)
        assert trainer.fit().skipped_steps == 1
    assert engine.batches == [step for step in range(160) if step != 150]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (skipped,) = [event for event in events if event["event"] == "skipped"]
    assert skipped["step"] == 151 and "a spike: loss" in skipped["reason"]


def test_it_is_off_by_default(tmp_path: Path) -> None:
    with make(tmp_path, FakeEngine(high=HIGH), *WORDS) as trainer:
        assert trainer.fit().skipped_steps == 0


@pytest.mark.parametrize("stop", [30, 149, 150, 151])
def test_the_window_is_part_of_the_saved_state(tmp_path: Path, stop: int) -> None:
    words = (*WORDS, "train.spike=skip")
    with make(tmp_path / "whole", FakeEngine(high=HIGH), *words) as trainer:
        whole = trainer.fit()
    with make(tmp_path / "parts", FakeEngine(high=HIGH), *words, f"train.stop_at={stop}") as trainer:
        trainer.fit()
    with make(tmp_path / "parts", FakeEngine(high=HIGH), *words) as trainer:
        summary = trainer.fit()
    assert (summary.final_hash, summary.skipped_steps) == (whole.final_hash, 1)
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")


def test_a_lasting_spike_sends_the_run_back(tmp_path: Path) -> None:
    engine = FakeEngine(high=frozenset(range(150, 160)))
    with make(tmp_path, engine, *WORDS, "train.spike=skip") as trainer:
        summary = trainer.fit()
    assert (summary.rewinds, summary.skipped_steps) == (1, 0)
    assert engine.batches == [*range(150), *range(160, 200)]
    assert checkpoint.list_steps(tmp_path / "checkpoints")[-1] == 160


def test_the_limits_are_six_deviations_above_the_mean() -> None:
    guard = UpdateGuard(TrainConfig(spike="skip"))
    losses = [1.0 if step % 2 else 3.0 for step in range(WINDOW)]
    for step, loss in enumerate(losses):
        assert guard.limits() is None
        guard.judge(step, Report(loss, 2 * loss))
    assert guard.limits() == (2.0 + 6 * 1.0, 4.0 + 6 * 2.0)
    guard.judge(WINDOW, Report(float("nan"), 1.0, finite=False))
    assert guard.limits() == (8.0, 16.0)  # only updates that were applied
