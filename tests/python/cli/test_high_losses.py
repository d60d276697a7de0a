"""Validation losses that are very high or not finite: their log entries, and how the run ends."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine
from fake_runs import make
from mudd_core import checkpoint
from mudd_core.base.errors import DivergedError
from mudd_core.base.framing import EventFile
from mudd_core.cli.entry import main
from mudd_core.config.programs import NAMES
from mudd_core.engine.model import Model
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records.events import perplexity
from tiny_run import CONFIG

NAN, INF = float("nan"), float("inf")


def engine_with(loss: Callable[[int], float]) -> FakeEngine:
    """Return an engine whose validation loss after n updates is loss(n)."""

    class Scripted(FakeEngine):
        def evaluate(self, batch: Any) -> tuple[float, int, int]:
            return loss(len(self.batches)) * 10 * batch, 10 * batch, 3 * batch

    return Scripted()


def strict_rows(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log. Raise an error for NaN and Infinity, which JSON does not have."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{path.name} has {name}")

    lines = path.read_text().splitlines()
    return [json.loads(line[line.index("{") :], parse_constant=refuse) for line in lines]


def test_perplexity_beyond_a_float_is_infinite() -> None:
    assert perplexity(0.0) == 1.0 and perplexity(800.0) == perplexity(INF) == INF
    assert perplexity(NAN) != perplexity(NAN)


def test_a_number_beyond_float32_is_an_infinity_in_an_event_file(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.scalars(1, {"high": 1e39, "low": -1e300})
    file.close()
    data = next(tmp_path.iterdir()).read_bytes()
    assert data.count(b"\x15" + struct.pack("<f", INF)) == 1
    assert data.count(b"\x15" + struct.pack("<f", -INF)) == 1


@pytest.mark.parametrize("style", ["ours", *NAMES])
@pytest.mark.parametrize("loss", [100.0, 800.0, INF, NAN])
def test_every_style_and_log_takes_a_high_loss_and_so_does_a_resume(
    tmp_path: Path, style: str, loss: float
) -> None:
    words = (f"log.style={style}", "log.mllog=true")
    with make(tmp_path, engine_with(lambda step: loss), *words, "train.stop_at=9") as trainer:
        trainer.fit()
    with make(tmp_path, engine_with(lambda step: loss), *words) as trainer:
        assert trainer.fit().step == 20
    rows = [row for row in strict_rows(tmp_path / "metrics.jsonl") if "val_loss" in row]
    finite = loss < INF
    assert [row["val_loss"] for row in rows] == [loss if finite else None] * len(rows) and len(rows) > 1
    assert (rows[-1]["val_ppl"] is None) == (loss != 100.0)
    strict_rows(tmp_path / "mlperf_compliance.log")
    strict_rows(tmp_path / "events.jsonl")
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("loss", [INF, NAN])
def test_a_loss_that_is_not_finite_is_never_the_best(tmp_path: Path, loss: float) -> None:
    words = ("train.save_policy=best", "train.eval_every=4", "train.save_every=2", "train.keep_last=0")
    with make(tmp_path, engine_with(lambda step: loss if step == 4 else 50.0 - step), *words) as trainer:
        trainer.fit()
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [8, 12, 16, 20]


@pytest.mark.parametrize("name", ["w", "m/w"])
def test_a_state_that_is_not_finite_is_not_saved(tmp_path: Path, name: str) -> None:
    engine = FakeEngine()
    with make(tmp_path, engine) as trainer:
        trainer.step()
        assert trainer.save()
        trainer.step()
        (engine.w if name == "w" else engine.m)[3] = NAN
        with pytest.raises(DivergedError, match=rf"\[save\] .* got nan at element 3 of '{name}'"):
            trainer.save()
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [1]


def test_numbers_whose_sum_overflows_are_saved(tmp_path: Path) -> None:
    engine = FakeEngine()
    with make(tmp_path, engine) as trainer:
        trainer.step()
        engine.w[:] = 3e38
        assert trainer.save()


def tiny(text: Path, workdir: Path, *words: str) -> list[str]:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}")
    return [f"--config={CONFIG}", f"--workdir={workdir}", *data, "train.steps=2", *words]


def test_a_weight_of_nan_given_by_a_notebook_is_not_saved(tiny_text: Path, tmp_path: Path) -> None:
    from mudd_core.config import load_config

    config = load_config(str(CONFIG), tiny(tiny_text, tmp_path)[2:])
    with Trainer(config, tmp_path / "run") as trainer:
        gain = trainer.model.parameters["final_norm.gain"].copy()
        gain[1] = NAN
        trainer.model.set_parameter("final_norm.gain", gain)
        with pytest.raises(DivergedError, match=r"got nan at element 1 of 'final_norm\.gain'"):
            trainer.save()
    assert not checkpoint.list_steps(tmp_path / "run" / "checkpoints")


def test_a_run_whose_last_validation_is_not_finite_exits_with_76(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Model, "evaluate", lambda self, batch: (INF, 10, 0))
    for _ in range(2):  # the second command finds a finished run
        assert main(tiny(tiny_text, tmp_path / "run")) == 76
        assert "validation loss of step 2: expected a finite number" in capsys.readouterr().err
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == [2]
