"""Metrics by source of a mixture: in metrics.jsonl, the report, the page and `validate`, equal for any ranks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from launched import called, launched
from mixture_cases import WORDS, files_of, write_sources
from mudd_core.config.mix_sources import source_config
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.mixture.rows import MixedRows
from mudd_core.run.build.rows import row_shape, validation_batches
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder
from places import HELPERS
from text_settings import quiet

WEIGHTS = {"web": 0.7, "code": 0.2, "own": 0.1}
MIX = "data.mix=" + ",".join(f"{name}:{weight}" for name, weight in WEIGHTS.items())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("source_metrics"))


def words_of(folder: Path, name: str, *more: str) -> list[str]:
    words = [f"--config={HELPERS / 'tiny_run_config.py'}", f"--workdir={folder / 'runs' / name}", MIX]
    words += [*files_of(folder), f"data.cache_dir={folder / 'cache'}", "train.steps=12", "train.seq_len=16"]
    return [*words, "train.eval_every=6", "train.log_every=3", *more]


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def whole(folder: Path) -> str:
    """Return the output of an uninterrupted run."""
    done = launched(folder, *words_of(folder, "whole"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_validation_has_the_loss_of_each_source_and_their_weighted_mean(folder: Path, whole: str) -> None:
    rows = [row for row in rows_of(folder, "whole") if "val_loss" in row]
    assert [row["step"] for row in rows] == [6, 12]
    for row in rows:
        losses = {name: row[f"val_loss/{name}"] for name in WORDS}
        bits = [row[f"val_bits_per_byte/{name}"] for name in WORDS]
        # rounding of a sum of three doubles
        assert row["val_loss"] == pytest.approx(
            sum(WEIGHTS[n] * loss for n, loss in losses.items()), rel=1e-12
        )
        assert len(set(losses.values())) == 3 and min(bits) < row["val_bits_per_byte"] < max(bits)
    shown = [line for line in whole.splitlines() if line.startswith("step 12: validation loss ")]
    assert f"; web {rows[-1]['val_loss/web']:.4f}, code {rows[-1]['val_loss/code']:.4f}, own " in shown[0]


def test_the_loss_of_a_source_is_the_loss_on_the_source_alone(folder: Path, whole: str) -> None:
    run = RunFolder(folder / "runs" / "whole")
    config, model = read_saved_config(run), mc.load_run(str(run)).model
    row = rows_of(folder, "whole")[-1]
    assert "val_loss" in row
    for name in WORDS:
        alone = source_config(config, name)
        text = prepare(alone, progress=quiet)
        rate = text.valid_bytes_per_target
        found = evaluate(model, validation_batches(alone, text), step=12, bytes_per_target=rate)
        assert found is not None
        assert found.val_loss == row[f"val_loss/{name}"]
        assert found.val_bits_per_byte == row[f"val_bits_per_byte/{name}"]


def test_report_page_and_validate_show_each_source(folder: Path, whole: str) -> None:
    place, row = str(folder / "runs" / "whole"), rows_of(folder, "whole")[-1]
    report = called(folder, "report", place).stdout
    table = report[report.index("sources of data.mix") :].splitlines()
    head, web = table[1].split(), table[2].split()
    assert head[0] == "source" and web[0] == "web"
    assert f"{row['val_loss/web']:.4f}" in web and len(table) >= 5
    assert called(folder, "report", place, "--html").returncode == 0
    page = (folder / "runs" / "whole" / "report.html").read_text()
    assert "<h2>Sources</h2>" in page or ">Sources<" in page
    assert "Validation loss by source" in page
    shown = called(folder, "validate", place).stdout
    for name in WORDS:
        assert f"source {name}: loss {row[f'val_loss/{name}']:.6f}, " in shown
    assert f"validation loss {row['val_loss']:.6f}" in shown


def test_an_update_has_the_metrics_of_each_source(folder: Path, whole: str) -> None:
    config = read_saved_config(RunFolder(folder / "runs" / "whole"))
    mixed = prepare(config, progress=quiet).rows("train", row_shape(config))
    assert isinstance(mixed, MixedRows)
    rows = [row for row in rows_of(folder, "whole") if "val_loss" not in row]
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    size = config.train.batch_size
    for row in rows:
        batch = mixed.sources((row["step"] - 1) * size, size).tolist()
        counts, epochs = mixed.counts(row["step"] * size), mixed.epochs(row["step"] * size)
        for at, name in enumerate(mixed.names):
            assert (row[f"loss/{name}"] is None) == (at not in batch)
            assert row[f"tokens/{name}"] == 16 * counts[at]
            assert row[f"share/{name}"] == counts[at] / (row["step"] * size)
            assert row[f"epochs/{name}"] == epochs[at]
        mean = sum(row[f"loss/{mixed.names[at]}"] for at in batch) / size
        # the sum over a sample is rounded to float32
        assert row["loss"] == pytest.approx(mean, rel=1e-6)
        for name in (mixed.names[at] for at in batch):
            # of bytes as tokens, where each target is one byte or the end of a document
            assert row[f"bits_per_byte/{name}"] == pytest.approx(row[f"loss/{name}"] / math.log(2), rel=0.05)
    report = called(folder, "report", str(folder / "runs" / "whole")).stdout
    assert "source" in report and "epochs" in report and f"{rows[-1]['epochs/web']:.3f}" in report
    assert called(folder, "report", str(folder / "runs" / "whole"), "--html").returncode == 0
    assert "Training loss by source" in (folder / "runs" / "whole" / "report.html").read_text()


def test_a_stopped_run_has_the_rows_of_an_uninterrupted_one(folder: Path, whole: str) -> None:
    words = words_of(folder, "stopped", "train.save_every=2")
    assert launched(folder, *words, "train.stop_at=7").returncode == 75
    done = launched(folder, *words)
    assert done.returncode == 0, done.stderr
    assert by_source(rows_of(folder, "stopped")) == by_source(rows_of(folder, "whole"))


@pytest.mark.parametrize("more", ["data.repeat_batch=true", "loss.label_smoothing=0.1"])
def test_repeated_batches_and_other_losses_are_divided_by_sources(folder: Path, more: str) -> None:
    name = more.partition("=")[0]
    done = called(folder, *words_of(folder, name, more, "train.log_every=1"))
    assert done.returncode == 0, done.stderr
    rows = [row for row in rows_of(folder, name) if "val_loss" not in row]
    for row in rows:
        shares = {one: row[f"share/{one}"] for one in WORDS}
        assert sum(shares.values()) == pytest.approx(1)  # of three doubles
        assert row["tokens/web"] + row["tokens/code"] + row["tokens/own"] == row["tokens"]
    first = rows[0]
    parts = [(first[f"tokens/{one}"], first[f"loss/{one}"]) for one in WORDS if first[f"tokens/{one}"]]
    mean = sum(tokens * loss for tokens, loss in parts) / first["tokens"]
    # the sum over a sample is rounded to float32
    assert first["loss"] == pytest.approx(mean, rel=1e-6)
    if "repeat" in more:
        assert rows[-1]["tokens/own"] == 12 * first["tokens/own"]


@pytest.mark.parametrize(
    "more",
    [
        ["--ranks=2"],
        ["--ranks=2", "train.micro_batch_size=2"],
        ["--ranks=2", "mesh.zero=3", "train.micro_batch_size=4"],
        ["train.micro_batch_size=2"],
        ["train.threads=2"],
    ],
)
def test_ranks_micro_batches_and_threads_have_the_same_numbers(
    folder: Path, whole: str, more: list[str]
) -> None:
    name = "-".join(one.strip("-").replace("=", "") for one in more)
    done = launched(folder, *words_of(folder, name, *more))
    assert done.returncode == 0, done.stderr
    assert by_source(rows_of(folder, name)) == by_source(rows_of(folder, "whole"))


def by_source(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns of sources, and the losses."""
    return [
        {name: value for name, value in row.items() if "/" in name or name in ("step", "loss", "val_loss")}
        for row in rows
    ]


def test_a_run_without_a_mixture_has_no_columns_of_sources(folder: Path) -> None:
    words = [word for word in words_of(folder, "plain") if not word.startswith(("data.mix", "data.sources"))]
    done = called(folder, *words, f"data.path={folder / 'web'}")
    assert done.returncode == 0, done.stderr
    assert not [name for row in rows_of(folder, "plain") for name in row if "/" in name]
    assert "sources of data.mix" not in called(folder, "report", str(folder / "runs" / "plain")).stdout


def test_a_source_without_validation_targets_has_no_part_in_the_mean() -> None:
    from mudd_core.run.build.sourced_batches import SourcedBatches

    batches = SourcedBatches.__new__(SourcedBatches)
    batches.weights = (7, 2, 1)
    assert batches.mean([1.0, math.nan, 2.0], [5, 0, 5]) == (7 * 1.0 + 2.0) / 8
    assert math.isnan(batches.mean([math.nan] * 3, [0, 0, 0]))
