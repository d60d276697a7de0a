"""report --spikes names a planted document, also of records, streams, conversations and plain ids."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from chat_cases import chat_config, write_folder
from id_cases import words_of
from mudd_core.cli import main
from mudd_core.config import Config, load_config
from mudd_core.run.loop.trainer import Trainer
from test_document_places import config_of

STEPS = ("train.log_every=1", "train.save_every=20", "optim.warmup_steps=1", "optim.lr=0.01", "eval.off=true")
BAD = "".join(chr(random.Random(5).randint(0x4E00, 0x9EFF)) for _ in range(60))


def jsonl(file: Path, records: Sequence[object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records))


def of_records(*words: str) -> Callable[[Path], Config]:
    def made(folder: Path) -> Config:
        jsonl(folder / "data/a.jsonl", [{"text": "ab" * 30}] * 150)
        jsonl(folder / "data/b.jsonl", [{"text": BAD if n == 169 else "ab" * 30} for n in range(250)])
        sizes = (
            "train.steps=90",
            "train.seq_len=61",
            "data.buffer=1",
            "eval.batch_size=1",
            "data.held_batch=1",
        )
        return config_of(folder / "data", *sizes, *STEPS, *words)

    return made


def of_chats(folder: Path) -> Config:
    write_folder(folder / "tokenizer", "llama3")
    records = []
    for number in range(400):
        answer = BAD[:2] if number == 269 else "end end end"
        turns = [{"role": "user", "content": f"cat {number}"}, {"role": "assistant", "content": answer}]
        records.append({"messages": turns})
    jsonl(folder / "data/b.jsonl", records)
    return chat_config(
        folder,
        folder / "data",
        *STEPS,
        "train.steps=90",
        "train.seq_len=28",
        "data.shuffle=off",
        "train.batch_size=4",
    )


def of_ids(folder: Path) -> Config:
    (folder / "data").mkdir()
    ids = np.arange(4000) % 2
    ids[2400:2408] = np.random.default_rng(3).integers(20, 90, 8)
    ids.astype("<u2").tofile(folder / "data/b.u16")
    return load_config(
        "tiny.py", words_of("ids", folder / "data", *STEPS, "train.steps=90", "data.shuffle=off")
    )


KINDS = {
    "records": of_records("data.pipeline=rows"),
    "a stream": of_records("data.pipeline=rows", "data.cache=stream"),
    "conversations": of_chats,
    "ids": of_ids,
}
RECORDS = {"records": 170, "a stream": 170, "conversations": 270, "ids": None}


@pytest.mark.parametrize("kind", KINDS)
def test_the_planted_document_is_named(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = KINDS[kind](tmp_path)
    with Trainer(config, tmp_path / "run") as trainer:
        trainer.fit(progress=False)
    assert main(["report", str(tmp_path / "run"), "--spikes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reason"] is None and found["sequences"], found["spikes"]
    worst = found["sequences"][0]["documents"][0]
    assert Path(worst["file"]).name == ("b.u16" if kind == "ids" else "b.jsonl")
    assert worst["record"] == RECORDS[kind], found["spikes"]
    if kind == "ids":
        assert worst["first_id"] in range(2400 - config.train.seq_len, 2409)
    assert main(["report", str(tmp_path / "run"), "--spikes"]) == 0
    place = f"b.u16, from id {worst['first_id']:,})" if kind == "ids" else f"b.jsonl, record {RECORDS[kind]})"
    assert place in capsys.readouterr().out


def test_synthetic_data_have_no_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config("tiny.py", words_of("synthetic", tmp_path / "data", *STEPS, "train.steps=4"))
    with Trainer(config, tmp_path / "run") as trainer:
        trainer.fit(progress=False)
    assert main(["report", str(tmp_path / "run"), "--spikes=3"]) == 0
    said = capsys.readouterr().out
    assert "note: data.pipeline=synthetic has no documents" in said and "row 0, sample" in said
