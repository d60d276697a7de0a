"""The commands of MUDDFormer's and TokenFormer's documents at a tiny size, run to their end."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import documents
from mudd_core.base.framing import framed
from mudd_core.cli import main
from mudd_core.data.formats.example import encoded

TINY = """
    tokenizer_path=bytes vocab_size=257 base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8
    base_num_decoder_layers=1 max_target_length=33 steps=4 eval_interval=4 checkpoint_period=2
"""
OF_TOKENFORMER = f"""
    {TINY} base_output_directory=runs grain_train_files=train* grain_eval_files=validation* grain_worker_count=2
    per_device_batch_size=4 eval_per_device_batch_size=4
"""
OF_MUDDFORMER = f"""
    {TINY} run_name=mudd dataset_path=records base_mlp_dim=128 dynamic_mlp_dim=False
    dynamic_dense_hidden_expand=[4] per_device_batch_size=2 eval_per_device_batch_size=2 eval_loop_num_batches=1
    learning_rate_schedule_steps=-1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(5)
    for name, count in (("train", 80), ("validation", 12)):
        lines = [
            json.dumps({"text": "".join(rng.choices("abc ", k=rng.randint(5, 40)))}) for _ in range(count)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def shrunk(words: tuple[str, ...], text: str) -> list[str]:
    """The arguments with some keys set to others; a key may stand once only."""
    sizes = dict(word.split("=", 1) for word in text.split())
    kept = [word for word in words if word.partition("=")[0] not in sizes]
    return [*kept, *(f"{name}={value}" for name, value in sizes.items()), "data.cache_dir=cache"]


def test_the_commands_of_tokenformer_train_grow_and_train_the_baseline(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, baseline = (command.words for command in documents.commands("tokenformer"))
    assert main(shrunk(first, f"{OF_TOKENFORMER} slot_num=8")) == 0, capsys.readouterr().err
    source = "runs/tokenformer124_steps600k/checkpoints/4/items"
    growth = f"slot_num=20 load_parameters_path={source} load_parameters_path_slot_number=8"
    assert main(shrunk(second, f"{OF_TOKENFORMER} {growth}")) == 0, capsys.readouterr().err
    assert "val_ppl" in (folder / "runs/tokenformer354_steps120k/metrics.jsonl").read_text()
    dense = "base_mlp_dim=32"
    assert main(shrunk(baseline, f"{OF_TOKENFORMER} {dense}")) == 0, capsys.readouterr().err
    assert sorted(path.name for path in (folder / "runs").iterdir() if path.name != "cache") == [
        "tokenformer124_steps600k", "tokenformer354_steps120k", "transformer124_steps600k",
    ]  # fmt: skip


def test_the_last_command_of_muddformer_trains_on_records_of_ids(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, records = np.random.default_rng(3), folder / "records"
    records.mkdir()
    for name, count in (("pile.tfrecord.b0", 9), ("pile.tfrecord.b1", 9), ("pile.tfrecord.valid", 4)):
        rows = [rng.integers(1, 257, 33, np.int64) for _ in range(count)]
        (records / name).write_bytes(b"".join(framed(encoded({"input_ids": row})) for row in rows))
    words = documents.commands("muddformer")[-1].words
    assert main(shrunk(words, OF_MUDDFORMER)) == 0, capsys.readouterr().err
    summary = json.loads((folder / "runs" / "mudd" / "summary.json").read_text())
    assert summary["steps"] == 4 and summary["val_loss"] > 0
