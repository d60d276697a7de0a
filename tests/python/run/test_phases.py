"""The phases of a step: each planted second of a run is in one of them, and they add up to the wall time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine
from fake_runs import make
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records.events import Summary
from mudd_core.run.records.journal import Listener
from mudd_core.run.records.phases import Phase, PhaseClock
from tiny_run import TinyRun


class Planted:
    """A clock that moves only when a test adds to it. reads: how often it was read."""

    def __init__(self) -> None:
        self.time, self.reads = 100.0, 0

    def __call__(self) -> float:
        self.reads += 1
        return self.time

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds


# hidden is no part of the step: it is in forward and backward
STAGES = {"data": 1.0, "forward": 2.0, "backward": 4.0, "update": 0.5, "messages": 0.25, "hidden": 3.0}
STEP = sum(STAGES.values()) - STAGES["hidden"]


def test_each_moment_is_in_the_innermost_phase() -> None:
    now = Planted()
    clock = PhaseClock(now)
    with clock.phase(Phase.SAVE):  # a stopped clock counts nothing
        now.pass_(1000)
    clock.step_took(STAGES)
    clock.start()
    now.pass_(1)
    with clock.phase(Phase.CALLBACK):
        now.pass_(2)
        with pytest.raises(ValueError, match="planted"), clock.phase(Phase.SAVE):
            now.pass_(4)
            raise ValueError("planted")
        now.pass_(8)
    clock.stop()
    now.pass_(1000)
    clock.start()
    now.pass_(16)
    found = clock.lap()
    assert {name: seconds for name, seconds in found.items() if seconds} == {
        "log": 17,
        "callback": 10,
        "save": 4,
    }
    assert set(clock.lap().values()) == {0.0}


def test_the_stages_of_an_update_are_taken_from_the_phase_that_surrounds_it() -> None:
    now = Planted()
    clock = PhaseClock(now)
    clock.start()
    with clock.phase(Phase.DATA):  # a retry of data that were lost
        now.pass_(30 + STEP)
        clock.step_took(STAGES)
    assert clock.hidden == 3.0
    found = clock.lap()
    assert clock.hidden == 0.0
    assert found == {
        **dict.fromkeys(map(str, Phase), 0.0),
        **{name: seconds for name, seconds in STAGES.items() if name != "hidden"},
        "data": 31.0,
    }


class Slow(Listener):
    """A log that takes half a second for an entry of an update."""

    def __init__(self, now: Planted) -> None:
        self._now = now

    def took_step(self, record: Any, *, logged: bool, seconds_left: float) -> None:
        self._now.pass_(0.5 * logged)


def planted_run(path: Path, now: Planted, *words: str) -> tuple[Trainer, Summary]:
    """Run 20 steps of planted stages, validations of 3 x 7 s, saves of 20 s and a callback of 3 s."""
    engine = FakeEngine(before_step=lambda step: now.pass_(STEP), step_seconds=STAGES)
    evaluate = engine.evaluate

    def slow_evaluation(batch: Any) -> tuple[float, int, int]:
        now.pass_(7)
        return evaluate(batch)

    engine.evaluate = slow_evaluation  # type: ignore[method-assign]
    with make(path, engine, *words) as trainer:
        run = trainer._run
        run.phases._now = now
        run.journal.add(Slow(now))
        save = run.store.save if run.store else None
        assert run.store is not None and save is not None

        def slow_save(*parts: Any, **more: Any) -> bool:
            now.pass_(20)
            return save(*parts, **more)

        run.store.save = slow_save  # type: ignore[method-assign]
        return trainer, trainer.fit(callback=lambda trainer: now.pass_(3))


def test_a_run_logs_planted_seconds_that_add_up_to_its_wall_time(tmp_path: Path) -> None:
    now = Planted()
    begin = now.time
    planted_run(tmp_path / "run", now)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "loss" in row]
    # train.log_every=2, save_every=5, eval_every=8: the work after a logged update is in the next entry
    for row in rows:
        phases, last = row["phases"], row["step"]
        steps = range(last - 2, last)  # after these updates
        assert phases["data"] == 2 * 1.0 and phases["forward"] == 2 * 2.0 and phases["backward"] == 2 * 4.0
        assert phases["update"] == 2 * 0.5 and phases["messages"] == 2 * 0.25 and row["hidden"] == 2 * 3.0
        assert phases["evaluation"] == 21.0 * sum(step > 0 and step % 8 == 0 for step in steps)
        assert phases["save"] == 20.0 * sum(step > 0 and step % 5 == 0 for step in steps)
        assert phases["log"] == 0.5 * (last > 2)
        assert phases["callback"] == 3.0 * (2 if last > 2 else 1)
    (end,) = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()][-1:]
    assert (
        end["event"] == "finished" and end["phases"]["evaluation"] == 21.0 and end["phases"]["save"] == 20.0
    )
    logged = sum(sum(row["phases"].values()) for row in rows) + sum(end["phases"].values())
    assert logged == now.time - begin


def test_the_clock_is_read_a_few_times_in_an_update(tmp_path: Path) -> None:
    counts = []
    for steps in (10, 20):
        now = Planted()
        planted_run(
            tmp_path / str(steps), now, f"train.steps={steps}", "train.log_every=10", "train.save_every=0"
        )
        counts.append(now.reads)
    # two readings around the callback, one for a log entry, two for a validation
    assert counts[1] - counts[0] <= 10 * 2 + 1 + 2


def test_a_step_of_the_real_engine_has_all_stages(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(
        tmp_path / "run", tiny_text, ("train.steps=4", "train.log_every=2", "train.eval_every=2")
    ).finished()
    rows = [json.loads(line) for line in (run.workdir / "metrics.jsonl").read_text().splitlines()]
    entries = [row["phases"] for row in rows if "loss" in row]
    assert [list(entry) for entry in entries] == [list(map(str, Phase))] * 2
    for entry in entries:
        assert all(entry[name] > 0 for name in ("data", "forward", "backward", "update", "log"))
        assert all(seconds >= 0 for seconds in entry.values())
    assert entries[0]["evaluation"] == 0 < entries[1]["evaluation"]
