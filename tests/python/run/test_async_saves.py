"""Asynchronous saves (train.save_async): the files of ordinary saves, whatever the steps change in the meantime."""

from __future__ import annotations

import errno
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from checkpoint_cases import faults
from fake_engine import FakeEngine
from fake_runs import config_of, make, rows_of, steps_in, unbroken
from mudd_core import checkpoint
from mudd_core.base.errors import SaveError
from mudd_core.config import load_config
from mudd_core.dist import Comm
from mudd_core.run.loop import signals
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks
from test_run_of_ranks import run as run_ranks
from tiny_run import CONFIG

ASYNC = "train.save_async=true"


def contents(path: Path) -> dict[str, Any]:
    """Return the bytes of all checkpoints, without the id of the run, times and CRCs of files that contain the id."""
    found: dict[str, Any] = {}
    for file in sorted(path.glob("checkpoints/*/*")):
        name = f"{file.parent.name}/{file.name}"
        if file.name == "manifest.json":
            about = json.loads(file.read_bytes())
            found[name] = {
                key: about[key] for key in ("step", "tensors", "config_hash", "world") if key in about
            }
            found[name]["state"] = {key: value for key, value in about["state"].items() if key != "seconds"}
        else:
            found[name] = re.sub(rb'"run_id":"[^"]*"', b"", file.read_bytes())
    return found


def real(path: Path | None, text: Path, *words: str, comm: Comm | None = None) -> Trainer:
    base = ["train.steps=8", "train.save_every=2", "train.keep_last=0", "train.eval_every=3"]
    data = [f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}"]
    return Trainer(load_config(CONFIG, [*data, *base, *words]), path, comm=comm)


@pytest.fixture
def held() -> Iterator[Any]:
    """Hold the writes of all files until the test lets them go; a timer does if the test waits for them."""
    with faults() as files:
        timers: list[threading.Timer] = []

        def let_go(after: float) -> threading.Event:
            gone = threading.Event()

            def open_gate() -> None:
                gone.set()
                files.hold_writes(False)

            timers.append(threading.Timer(after, open_gate))
            timers[-1].start()
            return gone

        yield files, let_go
        for timer in timers:
            timer.cancel()
        files.hold_writes(False)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("train.save_buffer=0",),
        ("train.save_buffer=70000",),
        ("optim.name=muon", "train.average=ema:0.9"),
        ("optim.name=lion", "optim.moment_dtype=bf16", "train.precision=bf16"),
        ("train.trainable=blocks.*", "train.keep_best=true", "train.save_at=0,3"),
        ("tune.method=lora", "start.load_parameters_path={base}"),
    ],
)
def test_the_files_are_those_of_ordinary_saves(
    tmp_path: Path, tiny_text: Path, words: tuple[str, ...]
) -> None:
    hashes = []
    if "tune.method=lora" in words:
        with real(tmp_path / "base", tiny_text, "train.steps=1") as trainer:
            trainer.fit(progress=False)
    words = tuple(word.format(base=tmp_path / "base") for word in words)
    for name, more in (("plain", ()), ("async", (ASYNC,))):
        with real(tmp_path / name, tiny_text, *words, *more) as trainer:
            hashes.append(trainer.fit().final_hash)
    assert hashes[0] == hashes[1] and rows_of(tmp_path / "plain") == rows_of(tmp_path / "async")
    assert contents(tmp_path / "plain") == contents(tmp_path / "async")
    assert len(steps_in(tmp_path / "async")) >= 4
    events = [
        json.loads(line)["event"] for line in (tmp_path / "async" / "events.jsonl").read_text().splitlines()
    ]
    assert events.count("saved") == len(steps_in(tmp_path / "async"))


def test_the_run_goes_on_while_nothing_can_be_written(
    tmp_path: Path, tiny_text: Path, held: tuple[Any, Any]
) -> None:
    """With room for all, three updates and a set weight pass before the first byte is written."""
    files, _ = held
    with real(tmp_path / "plain", tiny_text) as trainer:
        trainer.fit(2)
    with real(tmp_path / "async", tiny_text, ASYNC, "train.save_every=100", "train.save_at=2") as trainer:
        records = iter(trainer)
        next(records)
        files.hold_writes(True)
        assert next(records).step == 2
        assert steps_in(tmp_path / "async") == []
        trainer.model.set_parameter("embed", np.zeros_like(trainer.model.parameters["embed"]))
        assert [next(records).step for _ in range(3)] == [3, 4, 5]
        assert steps_in(tmp_path / "async") == []
        files.hold_writes(False)
        trainer.save()
    assert steps_in(tmp_path / "async") == [2, 5]
    plain, found = contents(tmp_path / "plain"), contents(tmp_path / "async")
    assert all(found[name] == data for name, data in plain.items() if name.endswith(".safetensors"))


def test_without_room_the_update_waits_until_all_is_written(
    tmp_path: Path, tiny_text: Path, held: tuple[Any, Any]
) -> None:
    files, let_go = held
    with real(tmp_path, tiny_text, ASYNC, "train.save_buffer=0") as trainer:
        records = iter(trainer)
        next(records)
        files.hold_writes(True)
        gone = let_go(0.3)
        assert next(records).step == 2
        next(records)
        assert gone.is_set()
    assert steps_in(tmp_path) == [2]


def test_a_save_that_comes_too_early_waits_and_says_so_once(
    tmp_path: Path, tiny_text: Path, held: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    files, let_go = held
    with real(tmp_path, tiny_text, ASYNC, "train.save_every=1") as trainer:
        for count in range(2):
            files.hold_writes(True)
            gone = let_go(0.3)
            trainer.fit(2, progress=False)
            assert gone.is_set() or count
    text = capsys.readouterr().err
    assert (
        text.count(
            "[train.save_async] the save of step 2 waits, because the checkpoint of step 1 is still being written"
        )
        == 1
    )
    assert text.count("[train.save_async]") == 1 and steps_in(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("end", ["stop", "error", "close"])
def test_every_end_waits_for_the_save(
    tmp_path: Path, tiny_text: Path, held: tuple[Any, Any], end: str
) -> None:
    files, let_go = held

    def after(trainer: Trainer) -> None:
        if trainer.step_done == 1:
            files.hold_writes(True)
        if trainer.step_done == 3:
            let_go(0.2)
            if end == "stop":
                signals.request("test")
            else:
                raise ZeroDivisionError

    trainer = real(tmp_path, tiny_text, ASYNC)
    try:
        if end == "close":
            for _ in trainer:
                after_three = trainer.step_done == 3
                if trainer.step_done == 1:
                    files.hold_writes(True)
                if after_three:
                    let_go(0.2)
                    break
        elif end == "stop":
            assert trainer.fit(progress=False, callback=after).stopped == "test"
        else:
            with pytest.raises(ZeroDivisionError):
                trainer.fit(progress=False, callback=after)
    finally:
        trainer.close()
        signals._forget()
    assert steps_in(tmp_path) == ([2] if end == "close" else [2, 3])


def test_a_disk_that_fills_during_a_step_ends_the_run_with_74(tmp_path: Path) -> None:
    with make(tmp_path, None, ASYNC, "train.stop_at=5") as trainer:
        trainer.fit(progress=False)
    before = contents(tmp_path)
    assert steps_in(tmp_path) == [5]
    with make(tmp_path, None, ASYNC) as trainer, faults() as files:
        records = iter(trainer)
        while trainer.step_done < 10:
            next(records)
        files.stop_at(files.count + 1)
        with pytest.raises(SaveError, match="step 20 could not be saved") as caught:
            list(records)
    assert caught.value.exit_code == 74
    checkpoint.recover(tmp_path / "checkpoints")  # the dead disk kept the temporary folder
    found = contents(tmp_path)
    assert {name: data for name, data in found.items() if "step-5/" in name} == before
    assert all(name.startswith(("step-5/", "step-10/")) for name in found)
    with make(tmp_path, None, ASYNC) as trainer:
        assert trainer.step_done in (5, 10)
        assert trainer.fit(progress=False).final_hash == unbroken(tmp_path / "plain")


def test_a_failed_save_is_made_up_for_by_the_next_one(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "plain")
    with make(tmp_path / "async", None, ASYNC) as trainer:
        records = iter(trainer)
        while trainer.step_done < 4:
            next(records)
        with faults(fail_at=(9, errno.ENOSPC)):
            while trainer.step_done < 7:
                next(records)
            trainer._saves.finish()
        assert steps_in(tmp_path / "async") == [] and trainer._state.saved_step == 0
        assert trainer._state.guard.anchor is None
        assert trainer.fit(progress=False).final_hash == whole
    assert steps_in(tmp_path / "async") == [10, 15, 20]


def test_a_rewind_waits_for_its_checkpoint(tmp_path: Path) -> None:
    words = ("train.max_skips=1", "train.save_every=4")
    hashes = []
    for name, more in (("plain", ()), ("async", (ASYNC,))):
        engine = FakeEngine(bad=frozenset({4, 9}))
        with make(tmp_path / name, engine, *words, *more) as trainer:
            hashes.append(trainer.fit(progress=False).final_hash)
    assert hashes[0] == hashes[1] and rows_of(tmp_path / "plain") == rows_of(tmp_path / "async")
    assert contents(tmp_path / "plain") == contents(tmp_path / "async")


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_commit_between_two_steps(tmp_path: Path, world: int) -> None:
    plain, found = (run_ranks(tmp_path / name, world, *more) for name, more in (("a", ()), ("b", (ASYNC,))))
    assert [one.final_hash for one in plain] == [one.final_hash for one in found]
    assert steps_in(tmp_path / "a") == steps_in(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


@pytest.mark.parametrize("words", [(), ("mesh.zero=3",), ("train.save_buffer=0",)])
def test_the_files_of_ranks_are_those_of_ordinary_saves(
    tmp_path: Path, tiny_text: Path, words: tuple[str, ...]
) -> None:
    """Ranks of one node share the weights, so a rank writes weights that another rank updates."""

    def train(name: str, *more: str) -> list[str]:
        def work(comm: Comm) -> str:
            with real(tmp_path / name, tiny_text, *words, *more, comm=comm) as trainer:
                return trainer.fit(progress=False).final_hash

        return on_ranks(work, 2)

    assert train("plain") == train("async", ASYNC)
    assert contents(tmp_path / "plain") == contents(tmp_path / "async")


def test_ranks_report_the_full_disk_of_one(tmp_path: Path) -> None:
    errors = []

    def fit(trainer: Trainer) -> None:
        trainer.fit(4, progress=False)
        try:
            if trainer._run.ranks.first:
                files.stop_at(files.count + 6)
            trainer.fit(progress=False)
        except BaseException as error:
            errors.append(getattr(error, "exit_code", error))
            raise

    with faults() as files:
        found = run_ranks(tmp_path, 2, ASYNC, "train.save_every=2", fit=fit)
    assert errors == [74, 74] and all(isinstance(error, Exception) for error in found)
    for step in steps_in(tmp_path):
        checkpoint.verify_step(tmp_path / "checkpoints" / f"step-{step}")
    assert steps_in(tmp_path)[0] in (2, 4)


def test_the_plan_counts_the_copies(tiny_text: Path) -> None:
    words = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    plain = mc.plan(load_config(CONFIG, words))
    for room in (10_000, 1 << 30):
        more = mc.plan(load_config(CONFIG, [*words, ASYNC, f"train.save_buffer={room}"]))
        wanted = min(room, plain.checkpoint_bytes)
        assert more.memory["saves"] == wanted and "copies for an asynchronous save" in str(more)
    assert "saves" not in plain.memory
    assert "saves" not in mc.plan(load_config(CONFIG, [*words, ASYNC, "train.save=false"])).memory


def test_the_fields_may_change_on_a_resume(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "plain")
    with make(tmp_path / "run", None, ASYNC, "train.stop_at=7") as trainer:
        trainer.fit(progress=False)
    with make(tmp_path / "run", None, "train.save_buffer=0") as trainer:
        assert trainer.step_done == 7 and trainer.fit(progress=False).final_hash == whole
    assert config_of(ASYNC).train.save_async
