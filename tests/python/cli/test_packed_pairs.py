"""tune with loss.packed_pairs: each pair once in an epoch, the losses of single pairs, fewer sequences, equal bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from chat_cases import write_jsonl
from launched import launched
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import check_config, load_config
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.rows import RowShape
from test_tune_pairs import PAIRS, pairs
from tune_folders import write_given

FIELDS = {"train_threads": 1, "train_seq_len": 128, "optim_lr": 0.003, "progress": False}
# The keys of attention start at another place in a packed sequence, so its sums have another order.
CLOSE = 1e-5


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small llama, a chat template and 80 pairs."""
    folder = write_given(tmp_path_factory.mktemp("packed-pairs"), 2)
    write_jsonl(folder / "pairs.jsonl", pairs(80))
    return folder


@pytest.fixture(autouse=True)
def _inside(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(given)


def rows_of(most: int, *words: str) -> Any:
    """Return the training sequences with up to `most` pairs; the reference of the kept answer n is n / 7."""
    fields = [*PAIRS, "data.path=pairs.jsonl", "train.seq_len=128", f"loss.packed_pairs={most}", *words]
    data = prepare(load_config("tiny.py", fields))
    assert isinstance(data, ChatData)
    if data.config.loss.kind == "dpo":
        data = replace(data, reference=np.arange(data.kept.lengths.size) / 7)
    return data.rows("train", RowShape(128, 4, 5))


def answers_of(rows: Any, epoch: int) -> list[tuple[bytes, ...]]:
    """Return (inputs, targets, numbers) of both answers of all pairs of an epoch, sorted."""
    found = []
    name = "reference" if "reference" in rows.arrays(0, 2) else "nll"
    for first in range(epoch * rows.rows, (epoch + 1) * rows.rows, 2):
        arrays = rows.arrays(first, 2)
        count = int(arrays["segments"].max())
        assert set(arrays["segments"][0]) - {0} == set(arrays["segments"][1]) - {0} == {*range(1, count + 1)}
        parts: list[list[list[Any]]] = [[], []]
        columns = 3 if name == "reference" else 5
        for side in (0, 1):
            numbers = arrays[name][side].reshape(-1, columns).astype(np.float64)
            assert not numbers[count:].any()
            for k in range(count):
                at = np.flatnonzero(arrays["segments"][side] == k + 1)
                assert np.array_equal(arrays["positions"][side, at], np.arange(at.size))
                own = numbers[k]
                if name == "nll":  # the weight of a target depends on the batch
                    assert (own[2:].sum() > 0) == (side == 0)
                    own = own[:2] - at[0]  # the place of the answer in its own sequence
                parts[side].append([arrays["inputs"][side, at], arrays["targets"][side, at], own])
        for pair in zip(*parts, strict=True):
            found.append(tuple(one.tobytes() for answer in pair for one in answer))
    return sorted(found)


@pytest.mark.parametrize("words", [(), ("loss.kind=orpo", "train.batch_size=256")])
def test_an_epoch_has_each_pair_once_in_fewer_sequences(words: tuple[str, ...]) -> None:
    alone, packed = rows_of(1, *words), rows_of(3, *words)
    assert packed.rows < alone.rows / 2
    one, other = (answers_of(packed, epoch) for epoch in (0, 1))
    assert one == other == answers_of(alone, 0) and len(one) == alone.rows // 2
    firsts = ([one.ids.tolist() for one in packed.examples(epoch * packed.rows)] for epoch in (0, 1, 2))
    assert len({*map(str, firsts)}) > 1  # the order changes


@pytest.mark.parametrize("loss", ["dpo", "orpo"])
def test_held_out_pairs_have_the_loss_of_single_pairs(loss: str) -> None:
    fields: dict[str, Any] = {**FIELDS, "loss": loss, "train_steps": 4, "optim_schedule": "constant"}
    fields |= {"loss_nll": "answer"} if loss == "orpo" else {}
    alone = mc.tune("base", "pairs.jsonl", f"runs/{loss}-alone", train_batch_size=8, **fields)
    packed = mc.tune(
        "base", "pairs.jsonl", f"runs/{loss}-packed", train_batch_size=4, loss_packed_pairs=4, **fields
    )
    first, want = packed.held_out[0], alone.held_out[0]
    assert first.loss == pytest.approx(want.loss, rel=CLOSE)
    assert first.margin == pytest.approx(want.margin, rel=CLOSE, abs=CLOSE)
    last = packed.held_out[-1]
    assert last.loss < first.loss and (last.margin or 0) > (first.margin or 0) and packed.answers


def test_resume_micro_batches_and_ranks_have_equal_bits(given: Path) -> None:
    fields: dict[str, Any] = {**FIELDS, "train_batch_size": 8, "train_logical_shards": 4, "train_steps": 4}
    fields |= {"loss": "dpo", "loss_packed_pairs": 3}
    whole = mc.tune("base", "pairs.jsonl", "runs/whole", **fields)
    mc.tune("base", "pairs.jsonl", "runs/parts", train_stop_at=2, **fields)
    parts = mc.tune("base", "pairs.jsonl", "runs/parts", train_micro_batch_size=2, **fields)
    assert parts.summary.final_hash == whole.summary.final_hash and parts.held_out == whole.held_out
    words = [f"{name.replace('_', '.', 1)}={value}" for name, value in fields.items() if "_" in name]
    asked = ["--base=base", "--data=pairs.jsonl", "--workdir=runs/ranks", "--loss=dpo", "--ranks=2"]
    done = launched(given, "tune", *asked, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(Path("runs/ranks/summary.json").read_text())["final_hash"]
    assert found == whole.summary.final_hash


def test_the_plan_says_how_many_pairs_a_batch_has(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "--base=base", "--data=pairs.jsonl", "--workdir=runs/plan", "--loss=dpo", "--plan"]
    assert main([*words, "loss.packed_pairs=4"]) == 0
    shown = capsys.readouterr().out
    assert "sequences of packed answers" in shown and "pairs: two packed sequences have" in shown


def test_packed_pairs_of_conversations_are_refused() -> None:
    with pytest.raises(UserError, match=r"loss.packed_pairs: expected 1 for loss.kind=tokens, got 2; conv"):
        check_config(load_config("tiny.py", ["data.pipeline=chat", "data.path=x", "loss.packed_pairs=2"]))
