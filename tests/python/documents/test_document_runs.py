"""The commands in MUDDFormer's and TokenFormer's documents with tiny sizes, run to their end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import documents
from document_sizes import (
    OF_MUDDFORMER,
    OF_TOKENFORMER,
    STREAMS,
    texts,
    with_keys,
    write_lines,
    write_records,
)
from memory_bucket import open_bucket
from mudd_core.cli import main
from printed_hints import sample_command

MUDDFORMER = documents.commands("muddformer")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ended(run: Path) -> dict[str, float]:
    """Return the summary of a run after checking that its files exist and that its log has the printed lines."""
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name == "step-4"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 4 and (run / "tensorboard").is_dir()
    assert "completed step: 4," in (run / "log.txt").read_text()
    found: dict[str, float] = json.loads((run / "summary.json").read_text())
    assert found["steps"] == 4 and found["val_loss"] > 0
    return found


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return open_bucket(monkeypatch).store


def test_the_commands_of_tokenformer_train_grow_and_train_the_baseline(
    folder: Path, bucket: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Use TokenFormer's bucket, in which the second command finds the weights of the first."""
    write_lines(folder / "train.jsonl", texts(80))
    write_lines(folder / "validation.jsonl", texts(12))
    cache = "data.cache_dir=cache"
    first, second, baseline = (command.words for command in documents.commands("tokenformer"))
    assert main(with_keys(first, f"{OF_TOKENFORMER} {cache} slot_num=8")) == 0, capsys.readouterr().err
    source = "gs://tokenformer_gcp/tokenformer124_steps600k/checkpoints/4/items"
    assert source.replace("/4/", "/590000/") in " ".join(second)
    growth = f"slot_num=20 load_parameters_path={source} load_parameters_path_slot_number=8"
    assert main(with_keys(second, f"{OF_TOKENFORMER} {cache} {growth}")) == 0, capsys.readouterr().err
    assert main(with_keys(baseline, f"{OF_TOKENFORMER} {cache} base_mlp_dim=32")) == 0, (
        capsys.readouterr().err
    )
    runs = sorted((folder / "runs" / "remote" / "tokenformer_gcp").iterdir())
    names = ["tokenformer124_steps600k", "tokenformer354_steps120k", "transformer124_steps600k"]
    assert [run.name for run in runs] == names
    for run in runs:
        ended(run)
        assert "val_ppl" in (run / "metrics.jsonl").read_text()
        assert f"/tokenformer_gcp/{run.name}/checkpoints/step-4/manifest.json" in bucket


@pytest.mark.parametrize("number", range(len(MUDDFORMER)))
def test_the_commands_of_muddformer_train_on_records_of_ids(
    number: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(folder / "records")
    words = MUDDFORMER[number].words
    extra = STREAMS if "model_name=MUDDLlama2Medium" in words else ""
    assert main(with_keys(words, f"{OF_MUDDFORMER} {extra} run_name=mudd")) == 0, capsys.readouterr().err
    assert sample_command(capsys.readouterr().out) is None  # the records are ids
    ended(folder / "mudd")


def test_weights_in_a_bucket_are_evaluated_into_a_bucket(
    folder: Path, bucket: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Check also that a run of the original program is rejected."""
    write_records(folder / "records")
    words = next(command.words for command in MUDDFORMER if "model_name=MUDDLlama2Medium" in command.words)

    def typed(text: str) -> int:
        return main(with_keys(words, f"{OF_MUDDFORMER} {STREAMS} {text}"))

    assert typed("run_name=gs://b/run") == 0, capsys.readouterr().err
    evaluation = "run_name=gs://b/new only_eval=True load_parameters_path=gs://b/run/checkpoints/4"
    for count in (1, 2):
        assert typed(evaluation) == 0, capsys.readouterr().err
        names = [name.removeprefix("/b/new/") for name in bucket if name.startswith("/b/new/")]
        assert "evaluations.jsonl" in names and not any(name.startswith("checkpoints") for name in names)
        assert len((folder / "runs/remote/b/new/evaluations.jsonl").read_text().splitlines()) == count
    assert typed("run_name=gs://b/new") == 0, capsys.readouterr().err
    ended(folder / "runs/remote/b/new")
    bucket["/b/theirs/checkpoints/skip_file_and_step.json"] = bucket["/b/new/evaluations.jsonl"]
    capsys.readouterr()
    for text in ("run_name=gs://b/theirs", "run_name=x load_parameters_path=gs://b/theirs/checkpoints/13000"):
        assert typed(text) == 2
        assert "gs://b/theirs is a run of MUDDFormer's own program" in capsys.readouterr().err
