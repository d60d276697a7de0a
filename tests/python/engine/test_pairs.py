"""Losses of pairs of answers in whole models: both executors, micro-batches and ranks have the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core import dist
from mudd_core.config import Config, LossConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.pairs import PairEvaluator, pair_parts
from preference_cases import together
from rank_runs import config_in_shards, on_ranks
from reference.numpy_preferences import pair_losses
from small_models import CASES, make, make_batch

CLOSE = 1e-5  # log-probabilities of float32 logits, summed over an answer
RULES = {
    "dpo": LossConfig(kind="dpo", beta=0.3, label_smoothing=0.1),
    "orpo": LossConfig(kind="orpo", beta=0.2, nll="answer"),
    "orpo_of_all": LossConfig(kind="orpo", beta=0.2),
}
WEIGHT = 0.0625  # of all targets of a chosen sample


def batch_of(vocab_size: int, samples: int, length: int, seed: int = 0) -> dict[str, Any]:
    """Return pairs with random prompts without a loss, and log-probabilities of a reference."""
    batch = make_batch(vocab_size, samples, length)
    rng = np.random.default_rng(seed)
    batch["targets"] = np.where(
        np.arange(length) < rng.integers(1, length, (samples, 1)), -1, batch["targets"]
    )
    batch["targets"] = batch["targets"].astype(np.int32)
    batch["reference"] = rng.normal(-20, 2, (samples, 3)).astype(np.float32)
    batch["nll"] = np.zeros((samples, 5), np.float32)
    batch["nll"][:, :2] = length - 3, length  # the last three positions are the answer
    batch["nll"][::2, 2] = WEIGHT
    return batch


def of_rule(batch: dict[str, Any], rule: LossConfig) -> dict[str, Any]:
    """Return the arrays that a loss needs."""
    others = {"reference", "nll"} - pair_parts(rule).keys()
    return {name: array for name, array in batch.items() if name not in others}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("name", CASES)
def test_planned_equals_immediate(name: str, kind: str) -> None:
    model, cfg, _ = make(name)
    model.pairs = RULES[kind]
    batch = of_rule(batch_of(cfg.vocab_size, 8, 17), RULES[kind])
    _, gradients = in_both_executors(model, batch, shards=4)
    assert any(array.any() for array in gradients.values())


@pytest.mark.parametrize("kind", RULES)
def test_the_loss_of_a_model_equals_the_formula(kind: str) -> None:
    model, cfg, _ = make("llama_gqa")
    model.pairs = RULES[kind]
    batch = batch_of(cfg.vocab_size, 6, 12)
    logits = model.logits(batch["inputs"]).astype(np.float64)
    each = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(each, np.maximum(batch["targets"], 0)[..., None], -1)[..., 0]
    counted = batch["targets"] >= 0
    given = batch["reference"].astype(np.float64).sum(1)
    rule, every = RULES[kind], (picked * counted).sum(1)
    counted &= (np.arange(12) >= 9) | (kind != "orpo_of_all")
    sums, sizes = (picked * counted).sum(1), counted.sum(1).astype(float)
    want = pair_losses(rule.kind, rule.beta, rule.label_smoothing, sums, sizes, given)
    if kind == "orpo_of_all":  # the weighted sum of all targets replaces the mean of the answer
        want = want._replace(loss=want.loss + (sums / sizes - WEIGHT * every)[::2])
    batch = of_rule(batch, rule)
    assert model.loss(batch) == pytest.approx(want.loss.mean(), rel=CLOSE)
    sums = PairEvaluator(model).evaluate(model.checked(batch)[0])
    assert sums.loss == pytest.approx(want.loss.sum(), rel=CLOSE)
    assert sums[1:5] == (3, (want.margin > 0).sum(), None, None)
    assert sums.margins == pytest.approx(want.margin.sum(), rel=CLOSE, abs=CLOSE)


def packed(batch: dict[str, Any]) -> dict[str, Any]:
    """Return eight samples of a batch as four, with two answers each, and their positions and segments."""
    length = batch["inputs"].shape[1]
    found = {name: together(array) for name, array in batch.items()}
    found["nll"].reshape(4, 2, 5)[:, 1, :2] += length
    found["positions"] = np.tile(np.arange(length, dtype=np.int32), (4, 2))
    found["segments"] = np.tile(np.repeat(np.array([1, 2], np.int32), length), (4, 1))
    return found


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("name", ["llama_gqa", "mudd", "gpt2"])
def test_packed_pairs_have_the_loss_and_gradients_of_pairs(name: str, kind: str) -> None:
    model, cfg, _ = make(name)
    model.pairs = RULES[kind]
    batch = batch_of(cfg.vocab_size, 8, 12)
    want, gradients = model.loss_and_gradients(of_rule(batch, RULES[kind]), shards=4)
    alone = PairEvaluator(model).evaluate(model.checked(of_rule(batch, RULES[kind]))[0])
    model.pairs = replace(RULES[kind], packed_pairs=2)
    two = of_rule(packed(batch), model.pairs)
    loss, found = in_both_executors(model, two, shards=2)
    assert loss == pytest.approx(want, rel=CLOSE)
    largest = max(np.abs(value).max() for value in gradients.values())
    for key, value in gradients.items():
        # The gradient of a key's bias is zero but for float32.
        bound = CLOSE * max(np.abs(value).max(), largest / 100)
        assert np.abs(found[key] - value).max() <= bound, key
    sums = PairEvaluator(model).evaluate(model.checked(two)[0])
    assert sums[1:3] == alone[1:3] and sums[1] == 4
    assert sums.margins == pytest.approx(alone.margins, rel=CLOSE, abs=CLOSE)


def test_wrong_segments_of_packed_pairs_are_refused() -> None:
    model, cfg, _ = make("llama_gqa")
    model.pairs = replace(RULES["dpo"], packed_pairs=2)
    two = of_rule(packed(batch_of(cfg.vocab_size, 8, 12)), model.pairs)
    without = {name: array for name, array in two.items() if name not in ("segments", "positions")}
    with pytest.raises(ValueError, match=r"segments: expected the answers of loss.packed_pairs=2, got none"):
        model.loss(without)
    for wrong in (two["segments"] + 1, 3 - two["segments"], np.ones_like(two["segments"]) * 3):
        with pytest.raises(ValueError, match="segments: expected ascending numbers from 1 to 2"):
            model.loss({**two, "segments": wrong})


def trained(comm: dist.Comm, config: Config) -> tuple[list[str], dict[str, bytes], dict[str, Any]]:
    """Return the losses of two steps, the weights and the metrics."""
    model = mc.Model(config.model, seed=1, comm=comm if comm.world > 1 else None)
    engine = Engine(config, model)
    losses = []
    for step in range(2):
        batch = batch_of(config.model.vocab_size, config.train.batch_size, config.train.seq_len, step)
        report = engine.train_step(step, 1e-2, of_rule(batch, config.loss))
        losses.append(float(report.loss).hex())
    return losses, {name: value.tobytes() for name, value in model.parameters.items()}, dict(engine.metrics())


@pytest.mark.parametrize("kind", RULES)
def test_micro_batches_and_ranks_have_the_bits_of_one(kind: str) -> None:
    shape = make("llama_gqa")[0].config
    config = replace(config_in_shards(shape, logical_shards=4), loss=RULES[kind])
    [want] = on_ranks(lambda comm: trained(comm, config), 1)
    assert set(want[2]) == {"accuracy", "margin"} and want[0][0] != want[0][1]
    for size, world in ((2, 1), (4, 1), (0, 2), (2, 2), (0, 4)):
        some = replace(config, train=replace(config.train, micro_batch_size=size))
        assert on_ranks(lambda comm, some=some: trained(comm, some), world) == [want] * world


def test_wrong_batches_of_pairs_are_refused() -> None:
    model, cfg, _ = make("llama_gqa")
    model.pairs = RULES["dpo"]
    batch = batch_of(cfg.vocab_size, 4, 9)
    odd = {name: array[:3] for name, array in batch.items()}
    with pytest.raises(ValueError, match="expected pairs, chosen and rejected by turns, got 3 sequences"):
        model.loss(odd)
    with pytest.raises(ValueError, match=r"reference: expected float32 \(4, 3\) for loss.kind=dpo"):
        model.loss(of_rule(batch, RULES["orpo"]))
    with pytest.raises(ValueError, match="whole pairs in each of 4 logical shards"):
        model.loss(batch, shards=4)
