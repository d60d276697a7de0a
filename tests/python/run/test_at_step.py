"""mc.Trainer(run, at_step=N): bits of the run before any update, and nothing in the folder of the run changes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixture_cases
import mudd_core as mc
import streaming_cases
from fake_engine import FakeEngine, fake_assembly
from fake_runs import make, rows_of
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.run.loop.trainer import Trainer
from rank_runs import config_of as config_of_ranks
from rank_runs import on_ranks
from test_resumes import ROWS, Sources, sources, tiny

small, sources = streaming_cases.small, sources
NAMES = (
    "transformer_pp",
    "gpt2",
    "muddformer with experts",
    "mixtral",
    "an architecture of the user's",
    "bf16",
    "adapters",
    "pissa in bf16",
    "chat",
    "pile",
    "synthetic",
    "pack, stream",
    "rows, full",
)
MORE = {
    "micro-batches": ("train.micro_batch_size=1", "train.average=ema:0.9"),
    "muon": ("optim.name=muon", "train.average=last:4"),
}


@dataclass
class Recorded:
    """The state of a run after each update, by step."""

    states: dict[int, str] = field(default_factory=dict)

    def __call__(self, trainer: Trainer) -> None:
        self.states[trainer.step_done] = state_of(trainer)


def state_of(trainer: Trainer) -> str:
    """Return a hash of weights, moments and averages."""
    digest = hashlib.sha256()
    for name, array in sorted(trainer.engine.state_tensors().items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return times and bytes of all entries of a folder."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def require_same_bits(folder: Path, recorded: Recorded, steps: tuple[int, ...]) -> None:
    """Raise AssertionError unless a Trainer at each of these steps has the run's state, and its next update too."""
    before = contents(folder)
    losses = {row["step"]: row["loss"] for row in rows_of(folder) if "loss" in row}
    for step in steps:
        with mc.Trainer(folder, at_step=step) as trainer:
            assert trainer.step_done == step
            if step:
                assert state_of(trainer) == recorded.states[step], step
            if step < max(recorded.states):
                mean = mean_loss(trainer)
                assert trainer.step().loss == losses[step + 1]
                assert state_of(trainer) == recorded.states[step + 1], step
                assert np.isfinite(mean)
    assert contents(folder) == before


def mean_loss(trainer: Trainer) -> float:
    losses = trainer.token_losses()
    assert losses.dtype == np.float32
    rows = trainer.batch_text()
    assert len(rows) == len(losses) == trainer.config.train.batch_size
    return float(losses.sum() / max(1, np.count_nonzero(losses)))


@pytest.mark.parametrize("name", MORE)
def test_micro_batches_optimizers_and_averages_have_their_bits(
    name: str, sources: Sources, tmp_path: Path
) -> None:
    recorded, config = Recorded(), tiny(sources, *MORE[name])
    with mc.Trainer(config, tmp_path / "run", callback=recorded) as trainer:
        trainer.fit(progress=False)
    require_same_bits(tmp_path / "run", recorded, (1, 3, 4, 5, 6, 7, 8))


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_run_has_its_bits(name: str, sources: Sources, memory_path: Path) -> None:
    recorded, config = Recorded(), partial(ROWS[name].recipe, sources)("train.steps=8", "train.keep_last=1")
    with mc.Trainer(config, memory_path / "run", callback=recorded) as trainer:
        trainer.fit(5, progress=False)
    with mc.Trainer(memory_path / "run", callback=recorded) as trainer:
        trainer.fit(progress=False)
    shutil.rmtree(memory_path / "run/checkpoints/step-8", ignore_errors=True)
    require_same_bits(memory_path / "run", recorded, (0, 4, 7))


def test_a_mixture_names_the_source_of_each_sequence(tmp_path: Path) -> None:
    files = mixture_cases.write_sources(tmp_path / "text")
    words = ("train.steps=8", "train.save_every=3", "train.log_every=1", "data.mix_phases=4:web:1,own:9")
    recorded = Recorded()
    with mc.Trainer(mixture_cases.mix_config(files, *words), tmp_path / "run", callback=recorded) as trainer:
        trainer.fit(progress=False)
    require_same_bits(tmp_path / "run", recorded, (2, 5, 7))
    with mc.Trainer(tmp_path / "run", at_step=3) as trainer:
        rows = trainer.batch_text()
    for row in rows:
        assert row.source is not None and row.text is not None
        words_of = set(mixture_cases.WORDS[row.source].split())
        assert set(row.text.replace("<|endoftext|>", " ").split()[1:-1]) <= words_of


@pytest.mark.parametrize("words", [(), ("mesh.zero=3",), ("mesh.data=2", "mesh.fsdp=1")])
def test_a_run_of_ranks_opens_in_one_process(words: tuple[str, ...], tiny_text: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"train.steps": 6, "train.log_every": 1}
    for word in words:
        name, _, value = word.partition("=")
        fields[name] = int(value)
    config = config_of_ranks(tiny_text, **fields)

    def train(comm: Any) -> list[float]:
        with Trainer(config, tmp_path / "run", comm=comm) as trainer:
            trainer.fit()
            return []

    on_ranks(train, 2, 2)
    losses = {row["step"]: row["loss"] for row in rows_of(tmp_path / "run") if "loss" in row}
    before = contents(tmp_path / "run")
    for step in (0, 4, 5):
        with mc.Trainer(tmp_path / "run", at_step=step) as trainer:
            assert trainer.step().loss == losses[step + 1]
    with mc.Trainer(tmp_path / "run", at_step=6) as trainer:
        summary = json.loads((tmp_path / "run/summary.json").read_text())
        assert trainer.final_hash() == summary["final_hash"]
    assert contents(tmp_path / "run") == before


STREAK = frozenset(range(12, 22))  # ten bad batches in a row send the run back to its checkpoint of step 10


def fake_at(folder: Path, step: int, bad: frozenset[int]) -> FakeEngine:
    """Return the engine of a Trainer at a step."""
    engine = FakeEngine(bad=bad)
    with Trainer(folder, at_step=step, assemble=fake_assembly(engine)) as trainer:
        assert trainer.step_done == step
    return engine


@pytest.mark.parametrize("keep_last", [1, 0])
@pytest.mark.parametrize("stops", [(), (11,), (15, 21), (13, 23)])
def test_rewinds_and_skipped_updates_are_the_ones_of_the_run(
    stops: tuple[int, ...], keep_last: int, memory_path: Path
) -> None:
    """Two single bad batches are skipped. The streak is left out, also if the run stops in it and resumes."""
    bad, states = STREAK | {3, 30}, dict[int, tuple[bytes, bytes]]()
    for stop in (*stops, 25):
        engine = FakeEngine(bad=bad)

        def record(trainer: Trainer, engine: FakeEngine = engine) -> None:
            states[trainer.step_done] = engine.w.tobytes(), engine.m.tobytes()

        words = (
            "train.steps=25",
            f"train.stop_at={stop if stop < 25 else 0}",
            f"train.keep_last={keep_last}",
        )
        with make(memory_path, engine, *words) as trainer:
            trainer.fit(callback=record)
    before = contents(memory_path)
    for step in range(1, 26):
        engine = fake_at(memory_path, step, bad)
        assert (engine.w.tobytes(), engine.m.tobytes()) == states[step], step
        # The updates that a rewind undid are left out.
        assert not STREAK & set(engine.batches)
    assert contents(memory_path) == before


def test_the_rewind_of_a_run_that_trains_is_known_from_its_events(memory_path: Path) -> None:
    engine, states, seen = FakeEngine(bad=STREAK), dict[int, bytes](), []

    def look(trainer: Trainer) -> None:
        states[trainer.step_done] = engine.w.tobytes()
        if trainer.step_done in (11, 13) and trainer._state.guard.rewinds:
            before = contents(memory_path)
            for step in (10, trainer.step_done):
                seen.append(fake_at(memory_path, step, STREAK).w.tobytes() == states[step])
            assert contents(memory_path) == before

    words = ("train.steps=25", "train.log_every=1")
    with make(memory_path, engine, *words) as trainer:
        trainer.fit(callback=look)
    assert seen == [True] * 4


def test_steps_that_cannot_be_reached_are_refused(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of_ranks(tiny_text, **{"train.keep_last": 1})
    with mc.Trainer(config, tmp_path / "run") as trainer:
        trainer.fit(progress=False)
        text = "expected at most 8, the last update of"
        with pytest.raises(UserError, match=text):
            mc.Trainer(tmp_path / "run", at_step=9)
    capsys.readouterr()
    with mc.Trainer(tmp_path / "run", at_step=2) as trainer:
        pass
    said = capsys.readouterr().err
    assert "trains 2 steps in memory from step 0" in said and "its checkpoints are of steps 8" in said


def refusals(run: Path, config: Config) -> Iterator[tuple[Callable[[], Trainer], type[Exception], str]]:
    """Yield wrong calls, the type of their error and a part of its message."""
    yield lambda: mc.Trainer("tiny.py", at_step=1), UserError, "got 'tiny.py', a config; leave at_step out"
    named, inside = f"type mc.Trainer('{run}', at_step=3)", run / "checkpoints"
    yield lambda: mc.Trainer(inside / "step-8", at_step=3), UserError, f"a checkpoint of a run; {named}"
    yield lambda: mc.Trainer(inside, at_step=3), UserError, f"the folder of checkpoints of a run; {named}"
    yield lambda: mc.Trainer("nosuch", at_step=3), UserError, "got 'nosuch', which does not exist"
    yield lambda: mc.Trainer(run.parent, at_step=3), UserError, "which has no run"
    yield lambda: mc.Trainer(config, at_step=1), TypeError, 'type mc.Trainer("runs/x", at_step=1)'
    yield lambda: mc.Trainer(run, "other", at_step=1), UserError, "leave workdir out"
    yield lambda: mc.Trainer(run, at_step=-1), UserError, "expected 0 or more, got -1"
    yield lambda: mc.Trainer(run, at_step=True), TypeError, "expected a number of updates, got True"
    yield lambda: mc.Trainer(run, at_step=1.5), TypeError, "expected a number of updates"  # type: ignore[arg-type]
    yield lambda: mc.Trainer(run.parent / "ran", at_step=1), UserError, "did you mean"


def test_wrong_arguments_and_missing_data_are_named(tmp_path: Path, tiny_text: Path) -> None:
    text, run = tmp_path / "text", tmp_path / "run"
    shutil.copytree(tiny_text, text)
    config = config_of_ranks(text, **{"data.cache_dir": str(run / "cache")})
    with mc.Trainer(config, run) as trainer:
        trainer.fit(progress=False)
    for call, error, message in refusals(run, config):
        with pytest.raises(error, match=message.replace("(", r"\(").replace(")", r"\)")):
            call()
    with mc.Trainer(run, at_step=6) as trainer:
        loss = trainer.step().loss
        with pytest.raises(UserError, match=r"changes nothing in .*; type trainer.model.save\(FOLDER\)"):
            trainer.save()
    # The cache is built in another folder, and the folder of the run does not change.
    shutil.rmtree(run / "cache")
    before = contents(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with mc.Trainer(run, at_step=6) as trainer:
            assert trainer.step().loss == loss
        assert (tmp_path / "runs/cache").is_dir() and contents(run) == before
        shutil.rmtree(tmp_path / "runs")
        shutil.rmtree(text)
        with pytest.raises(UserError, match="text"):
            mc.Trainer(run, at_step=6)


def test_the_rest_of_a_run_trains_in_memory(tmp_path: Path, tiny_text: Path) -> None:
    with mc.Trainer(config_of_ranks(tiny_text), tmp_path / "run") as trainer:
        trainer.fit(progress=False)
        expected = trainer.final_hash()
    with mc.Trainer(tmp_path / "run", at_step=5) as trainer:
        assert trainer.fit(progress=False).final_hash == expected
        captured = trainer.capture("blocks.0.*", gradients=False)
        assert captured["blocks.0.attn.in"].shape == (8, 64, 32)
        with pytest.raises(
            UserError, match=r"at most 8 updates, .* got update 9; at_step=7 opens the run before"
        ):
            trainer.step()
        assert trainer.step_done == 8 and trainer.final_hash() == expected
