"""log.style=moe and log.mllog in a training loop."""

from __future__ import annotations

from pathlib import Path

import pytest

import fake_runs
from event_files import tags_of
from fake_engine import FakeEngine, fake_assembly
from mllog_files import mllog_events
from mudd_core.base.errors import DivergedError, SaveError
from mudd_core.programs.moe.mllog import TOKEN
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.progress import Progress
from mudd_core.run.store.run_folder import BENCHMARK_LOG

KEYS = ("block_start", "block_stop", "train_loss", "eval_start", "eval_accuracy", "eval_stop", "run_stop")


def shown(folder: Path) -> list[tuple]:
    return [(line["key"], line["metadata"].get("samples_count")) for line in mllog_events(folder)]


def test_a_run_leaves_the_log_on_stdout_and_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = fake_runs.config_of("log.mllog=true", "log.style=moe", "train.eval_every=10")
    with Trainer(config, tmp_path, progress=Progress(), assemble=fake_assembly(FakeEngine())) as trainer:
        trainer.fit()
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith(TOKEN)] == (
        (tmp_path / BENCHMARK_LOG).read_text(encoding="utf-8").splitlines()
    )
    tokens = config.train.batch_size * config.train.seq_len
    assert f"no target validation loss; a validation every 10 steps ({10 * tokens:,} tokens)" in out
    accuracy = [count for key, count in shown(tmp_path) if key == "eval_accuracy"]
    assert accuracy == [10 * tokens, 20 * tokens]
    assert mllog_events(tmp_path)[-1]["metadata"]["status"] == "aborted"


def test_a_resumed_run_has_the_log_of_an_unbroken_one(tmp_path: Path) -> None:
    words = ("log.mllog=true", "train.eval_every=5", "train.save_every=5", "train.log_every=1")
    with fake_runs.make(tmp_path / "one", None, *words) as trainer:
        trainer.fit()
    with fake_runs.make(tmp_path / "two", None, *words, "train.stop_at=7") as trainer:
        trainer.fit()
    assert mllog_events(tmp_path / "two")[-1]["metadata"]["status"] == "aborted"
    with fake_runs.make(tmp_path / "two", None, *words) as trainer:
        trainer.fit()
    assert shown(tmp_path / "two") == shown(tmp_path / "one")


@pytest.mark.parametrize(("every", "stops"), [(1, 2), (2, 2), (3, 6), (8, 8), (7, 9)])
def test_the_log_and_the_target_use_steps_that_log_every_divides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int, stops: int
) -> None:
    words = ("log.mllog=true", "log.style=moe", "train.eval_every=2", "eval.target_loss=99", "train.steps=9")
    config = fake_runs.config_of(*words, f"train.log_every={every}")
    with Trainer(config, tmp_path, progress=Progress(), assemble=fake_assembly(FakeEngine())) as trainer:
        summary = trainer.fit()
    tokens = config.train.batch_size * config.train.seq_len
    counts = {key: [n // tokens for name, n in shown(tmp_path) if name == key] for key in KEYS}
    counted = [] if every == 7 else [stops]
    assert counts == {"block_start": [0], "block_stop": [stops], **dict.fromkeys(KEYS[2:-1], counted)} | {
        "run_stop": [stops]
    }
    assert summary.step == stops and summary.reached == bool(counted)
    said = f"; the MLPerf log and the target use one every {stops} steps (log_frequency={every})"
    assert (said in capsys.readouterr().out) == (
        every in (3, 8)
    )  # 7 and 2 first coincide after the end of the run


def test_a_run_that_diverges_ends_its_log(tmp_path: Path) -> None:
    def diverge(step: int) -> None:
        if step == 4:
            raise DivergedError("ten in a row")

    with (
        pytest.raises(DivergedError),
        fake_runs.make(tmp_path, FakeEngine(before_step=diverge), "log.mllog=true") as trainer,
    ):
        trainer.fit()
    assert [line["key"] for line in mllog_events(tmp_path)].count("run_stop") == 1


def test_an_unwritable_compliance_file_is_74(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPLIANCE_FILE", str(tmp_path / "no" / "where"))
    with pytest.raises(SaveError) as caught:
        fake_runs.make(tmp_path / "run", None, "log.mllog=true")
    assert caught.value.exit_code == 74


def test_moe_has_the_scalars_of_the_benchmark(tmp_path: Path) -> None:
    with fake_runs.make(tmp_path, None, "log.style=moe", "train.log_every=2") as trainer:
        trainer.fit()
        config, flops = trainer.config, trainer._run.components.flops_per_token
        count = sum(value.size for value in trainer.model.parameters.values())
    tags = tags_of(tmp_path / "tensorboard")
    wanted = {
        "train/loss",
        "train/grad_norm",
        "train/num_tokens",
        "train/lr",
        "perf/step_time_seconds",
        "perf/per_device_tflops",
        "perf/per_device_tflops_per_sec",
        "perf/per_device_active_tflops",
        "perf/per_device_active_tflops_per_sec",
        "perf/per_device_tokens_per_sec",
        "step",
        "eval/loss",
        "eval/num_tokens",
        "eval/total_weights",
    }
    assert wanted <= set(tags)
    tokens = config.train.batch_size * config.train.seq_len
    assert tags["train/num_tokens"][4] == 4 * tokens and 3 not in tags["perf/per_device_tflops"]
    assert tags["perf/per_device_tflops"][4] == pytest.approx(6 * count * tokens / 1e12)
    assert tags["perf/per_device_active_tflops"][4] == pytest.approx(flops * tokens / 1e12)
