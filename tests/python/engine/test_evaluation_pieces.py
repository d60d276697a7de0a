"""A validation batch is split for a graph of fewer sequences, which needs less memory and returns the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mudd_core.config import Config, EvalConfig, MixtralConfig, TrainConfig
from mudd_core.engine.evaluation import piece_size
from mudd_core.engine.model import Model
from mudd_core.run.build.planned_model import plan_model
from near import REORDERED
from small_models import CASES

T = 12


def batch_of(rows: int, vocabulary: int, *names: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, vocabulary, (rows, T + 1), dtype=np.int32)
    targets = np.where(rng.random((rows, T)) < 0.2, -1, ids[:, 1:]).astype(np.int32)
    lengths = rng.integers(3, T, rows)[:, None]
    of = {
        "segments": 1 + (np.arange(T) >= lengths).astype(np.int32),
        "positions": np.tile(np.arange(T, dtype=np.int32), (rows, 1)),
        "key_mask": (np.arange(T) < lengths).astype(np.int32),
    }
    inputs = np.ascontiguousarray(ids[:, :-1])
    return {"inputs": inputs, "targets": targets, **{name: of[name] for name in names}}


@pytest.mark.parametrize("family", ["llama_gqa", "gpt2", "mudd"])
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_pieces_change_no_bits(family: str, rows: int) -> None:
    model = Model(CASES[family][0], seed=1)
    batch = batch_of(rows, model.config.vocab_size, "segments")
    found = set()
    for at_once in (0, 1, 2, 4, 8):
        model.evaluated_at_once = at_once
        found.add(model.evaluate(batch))
    assert len(found) == 1
    nats, targets, guessed = found.pop()
    likeliest = np.argmax(model.logits(batch), -1)
    assert guessed == int((likeliest == batch["targets"]).sum())
    assert targets == int((batch["targets"] >= 0).sum())
    assert nats / targets == pytest.approx(model.loss(batch), rel=REORDERED)


def test_evaluation_reads_segments_and_masks() -> None:
    model = Model(CASES["llama_gqa"][0], seed=1)
    plain = batch_of(4, model.config.vocab_size)
    for name in ("segments", "key_mask"):
        assert model.evaluate(batch_of(4, model.config.vocab_size, name)) != model.evaluate(plain)
    positions = {**plain, "positions": 2 * batch_of(4, 9, "positions")["positions"]}
    assert model.evaluate(positions) != model.evaluate(plain)


def test_a_mixture_whose_capacity_is_of_a_shard_takes_the_whole_batch() -> None:
    shape = MixtralConfig(vocab_size=9, max_seq_len=T)
    assert piece_size(shape, 6, 2) == (2, 2)
    capped = replace(shape, capacity_factor=1.0)
    assert piece_size(capped, 6, 2) == (2, 2)
    assert piece_size(replace(capped, capacity_scope="shard"), 6, 2) == (6, 1)


def test_a_large_evaluation_batch_needs_the_memory_of_a_run_of_the_training_graph() -> None:
    def evaluation(size: int, micro: int) -> int:
        train = TrainConfig(batch_size=8, seq_len=T, micro_batch_size=micro)
        config = Config(model=CASES["llama_gqa"][0], train=train, eval=EvalConfig(batch_size=size))
        _, _, report = plan_model(config.model, config, only=True)
        return int(report["evaluation"])

    assert evaluation(64, 2) == evaluation(2, 2) < evaluation(64, 8) == evaluation(8, 0)
