"""From raw text to a trained TokenFormer or MUDDFormer, by commands of MaxText on files from `data convert`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import documents
from document_sizes import OF_MUDDFORMER, OF_TOKENFORMER, STREAMS, texts, with_keys, write_lines
from mudd_core.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summary(run: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(Path(run, "summary.json").read_text())
    return found


def test_text_to_tfrecord_to_arrayrecord_to_training_and_growth() -> None:
    Path("text").mkdir()
    for number in range(3):
        Path(f"text/{number}.txt").write_text("\n".join(texts(30, number)))
    assert main(["data", "convert", "--from=text", "--to=tf", "--format=tfrecord", "--split-valid=0.2"]) == 0
    assert main(["data", "convert", "--input_pattern=tf/*.tfrecord", "--output_path=ar"]) == 0
    files = "grain_train_files=ar/train* grain_eval_files=ar/validation* data.cache_dir=cache"
    files += " base_output_directory=runs"
    first, second, _ = (command.words for command in documents.commands("tokenformer"))
    assert main(with_keys(first, f"{OF_TOKENFORMER} {files} slot_num=8")) == 0
    source = "runs/tokenformer124_steps600k/checkpoints/4/items"
    growth = f"slot_num=20 load_parameters_path={source} load_parameters_path_slot_number=8"
    assert main(with_keys(second, f"{OF_TOKENFORMER} {files} {growth}")) == 0
    grown = json.loads(Path("runs/tokenformer354_steps120k/config.json").read_text())
    assert grown["model"]["slot_num"] == 20 and grown["data"]["pipeline"] == "pack"
    assert summary("runs/tokenformer354_steps120k")["steps"] == 4


def test_indexed_documents_to_tfrecord_to_muddformer() -> None:
    write_lines(Path("text.jsonl"), texts(60))
    ids = ["--from=text.jsonl", "--to=ids", "--format=megatron", "--tokenizer=bytes", "--split-valid=0.3"]
    assert main(["data", "convert", *ids]) == 0
    assert main(["data", "convert", "--from=ids", "--to=records", "--shards=2", "--length=33"]) == 0
    names = [f"pile.tfrecord.{name}" for name in ("b0", "b1", "valid0", "valid1")]
    assert sorted(path.name for path in Path("records").iterdir()) == names
    words = with_keys(documents.commands("muddformer")[-1].words, f"{OF_MUDDFORMER} {STREAMS} run_name=mudd")
    assert main(words) == 0
    assert summary("mudd")["steps"] == 4 and summary("mudd")["val_loss"] > 0
