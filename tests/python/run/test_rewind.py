"""Rewinds: the step to which a run returns, the batches that it skips, and equal bits after any stop or crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_engine import FakeEngine
from fake_runs import make as make_run
from fake_runs import rows_of
from mudd_core import _core, checkpoint
from mudd_core.base.errors import DivergedError
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.store.run_store import RunStore

STREAK = frozenset(
    range(12, 22)
)  # max_skips: ten bad batches in a row; the checkpoint before them is of step 10
CALLS = 38  # calls for 25 updates with this streak: 22, then 15 after the rewind to step 10


def make(path: Path | None, engine: FakeEngine, *words: str) -> Trainer:
    return make_run(path, engine, "train.steps=25", *words)


def events_of(path: Path, name: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == name]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """Return the final hash and log entries of an unbroken run with the streak."""
    path = tmp_path_factory.mktemp("whole")
    with make(path, FakeEngine(bad=STREAK), "train.keep_last=1") as trainer:
        return trainer.fit().final_hash, rows_of(path)


def test_a_streak_sends_the_run_back_and_its_batches_are_left_out(tmp_path: Path) -> None:
    engine = FakeEngine(bad=STREAK)
    with make(tmp_path, engine, "train.log_every=1") as trainer:
        summary = trainer.fit()
    assert engine.batches == [*range(12), *range(22, 37)]
    assert (summary.step, summary.rewinds, summary.skipped_steps) == (25, 1, 0)
    steps = [row["step"] for row in rows_of(tmp_path) if "val_loss" not in row]
    assert steps == list(range(1, 26))  # each step once: the entries of the abandoned path are removed
    assert [row["step"] for row in rows_of(tmp_path) if "rewinds" in row] == list(range(11, 26))
    (event,) = events_of(tmp_path, "rewound")
    found = {name: event[name] for name in ("from_step", "to_step", "first_batch", "last_batch")}
    assert found == {"from_step": 21, "to_step": 10, "first_batch": 10, "last_batch": 21}


def test_the_state_after_it_is_that_of_the_other_batches(tmp_path: Path) -> None:
    with make(tmp_path, FakeEngine(bad=STREAK)) as trainer:
        got = trainer.fit().final_hash
    other = FakeEngine()
    with make(None, other) as trainer:
        for step in range(25):
            trainer._state.guard.batch_index = lambda at: at if at < 10 else at + 12  # type: ignore[method-assign]
            trainer.step()
            assert trainer.step_done == step + 1
        assert trainer.final_hash() == got


def crash(trainer: Trainer) -> None:
    raise KeyboardInterrupt


def stop(trainer: Trainer) -> None:
    _core.request_stop()


def save(trainer: Trainer) -> None:
    trainer.save()  # as SIGUSR2 does


@pytest.mark.parametrize("what", [crash, stop, save])
def test_no_crash_stop_or_save_at_any_step_changes_a_bit(
    memory_path: Path, what: Callable[[Trainer], None], whole: tuple[str, list[dict[str, Any]]]
) -> None:
    for at in range(1, CALLS):
        path, calls = memory_path / str(at), 0
        running: list[Trainer] = []

        def before(step: int, at: int = at, running: list[Trainer] = running) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                what(running[-1])

        for _ in range(2):
            engine = FakeEngine(bad=STREAK, before_step=before)
            with make(path, engine, "train.keep_last=1") as trainer:
                running.append(trainer)
                try:
                    summary = trainer.fit()
                except KeyboardInterrupt:
                    continue
                finally:
                    _core.clear_requests()
        assert (summary.final_hash, rows_of(path)) == whole, at
        assert summary.rewinds == 1


@pytest.mark.parametrize("phase", ["drop_after", "close", "open"])
def test_a_crash_in_the_middle_of_a_rewind_changes_no_bit(
    tmp_path: Path,
    phase: str,
    whole: tuple[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop, opened = checkpoint.drop_after, RunStore.open_logs

    def dropped(*args: Any, **named: Any) -> list[int]:
        if phase == "drop_after":
            raise KeyboardInterrupt
        found = drop(*args, **named)
        if phase == "close":
            raise KeyboardInterrupt
        return found

    def open_logs(store: RunStore, step: int) -> None:
        opened(store, step)
        if step == 10 and phase == "open":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "drop_after", dropped)
        patched.setattr(RunStore, "open_logs", open_logs)
        with (
            pytest.raises(KeyboardInterrupt),
            make(tmp_path, FakeEngine(bad=STREAK), "train.keep_last=1") as trainer,
        ):
            trainer.fit()
    with make(tmp_path, FakeEngine(bad=STREAK), "train.keep_last=1") as trainer:
        assert (trainer.fit().final_hash, rows_of(tmp_path)) == whole


def test_a_stop_on_the_way_keeps_the_checkpoint_to_go_back_to(tmp_path: Path) -> None:
    with make(tmp_path, FakeEngine(bad=STREAK), "train.keep_last=1", "train.stop_at=15") as trainer:
        trainer.fit()
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [10, 15]
    with make(tmp_path, FakeEngine(bad=STREAK), "train.keep_last=1") as trainer:
        assert trainer.fit().rewinds == 1
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [25]


def test_a_damaged_checkpoint_on_the_way_back_is_passed_over(tmp_path: Path) -> None:
    def damage(step: int) -> None:
        if step == 15:
            (shard, *_) = (tmp_path / "checkpoints" / "step-10").glob("*.safetensors")
            data = bytearray(shard.read_bytes())
            data[-1] ^= 1
            shard.write_bytes(data)

    with make(tmp_path, FakeEngine(bad=STREAK, before_step=damage)) as trainer:
        summary = trainer.fit()
    (event,) = events_of(tmp_path, "rewound")
    assert (summary.rewinds, event["to_step"], event["first_batch"]) == (1, 5, 5)


def test_a_read_that_fails_on_the_way_back_leaves_nothing_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with make(tmp_path, FakeEngine(bad=STREAK)) as trainer:
        monkeypatch.setattr(checkpoint, "load_newest", fail)
        with pytest.raises(OSError, match="Input/output"):
            trainer.fit()
        with pytest.raises(DivergedError, match="so they are neither trained nor saved"):
            trainer.save()


def test_after_so_many_rewinds_the_run_ends_and_more_may_be_allowed(tmp_path: Path) -> None:
    bad = frozenset(range(7, 47))
    with (
        pytest.raises(DivergedError, match="already been rewound 2 times") as caught,
        make(tmp_path, FakeEngine(bad=bad), "train.rewind=2") as trainer,
    ):
        trainer.fit()
    assert caught.value.exit_code == 76
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [5]
    engine = FakeEngine(bad=bad)
    with make(tmp_path, engine, "train.rewind=4") as trainer:
        assert trainer.fit().rewinds == 4
    assert engine.batches == [5, 6, *range(47, 67)]


@pytest.mark.parametrize(
    ("words", "why"), [(("train.save_every=0",), "train.save_every"), (("train.rewind=0",), "train.rewind=0")]
)
def test_without_a_way_back_a_streak_ends_the_run(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    with (
        pytest.raises(DivergedError, match=why),
        make(tmp_path, FakeEngine(bad=STREAK), *words) as trainer,
    ):
        trainer.fit()


def test_an_update_that_wrote_infinity_is_taken_back_at_once(tmp_path: Path) -> None:
    engine = FakeEngine(bursting=frozenset({12}))
    with make(tmp_path, engine) as trainer:
        summary = trainer.fit()
    assert engine.batches == [*range(13), *range(13, 28)]
    assert (summary.rewinds, summary.skipped_steps) == (1, 0)
    for step in checkpoint.list_steps(tmp_path / "checkpoints"):
        found = checkpoint.load_step(tmp_path / "checkpoints", step)
        assert all(np.isfinite(tensor).all() for tensor in found.tensors.values())


@pytest.mark.parametrize("words", [("train.rewind=0",), ("train.save_every=0",)])
def test_infinity_that_cannot_be_taken_back_is_never_saved(tmp_path: Path, words: tuple[str, ...]) -> None:
    with make(tmp_path, FakeEngine(bursting=frozenset({12})), *words) as trainer:
        with pytest.raises(DivergedError, match="update 13 wrote weights or moments"):
            trainer.fit()
        before = checkpoint.list_steps(tmp_path / "checkpoints")
        for use in (trainer.save, trainer.step, trainer.fit):
            with pytest.raises(DivergedError, match="so they are neither trained nor saved"):
                use()
        assert checkpoint.list_steps(tmp_path / "checkpoints") == before


def test_a_notebook_without_a_work_directory_ends_as_before() -> None:
    with (
        make(None, FakeEngine(bad=STREAK)) as trainer,
        pytest.raises(DivergedError, match="10 updates in a row"),
    ):
        trainer.fit()
