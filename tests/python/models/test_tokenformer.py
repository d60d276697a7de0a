"""Features that only TokenFormer has: dropped paths, packed documents, added positions, every normalisation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core.base.errors import UserError
from mudd_core.config import Config, OptimConfig, TokenFormerConfig, TrainConfig
from mudd_core.engine.engine import Engine
from near import REORDERED
from reference import torch_models as tm
from reference import torch_training as tt
from reference.bounds import LOSS
from reference.torch_tokenformer import Tokenformer
from small_models import equal, make_batch, require_gradients

SMALL = TokenFormerConfig(vocab_size=61, max_seq_len=24, d_model=32, n_layer=2, n_head=4, slot_num=12)


def run(steps: int = 2, seed: int = 0, **options: Any) -> dict[str, Any]:
    """Return the state after some steps of a model that drops branches for half of the samples."""
    drop = options.pop("drop_path", 0.5)
    train = TrainConfig(steps=9, batch_size=8, seq_len=16, seed=seed, **options)
    model = dataclasses.replace(SMALL, drop_path=drop)
    config = Config(name="test", model=model, train=train, optim=OptimConfig(lr=1e-2, decay="all"))
    engine = Engine(config, mc.Model(model, seed=4))
    for step in range(steps):
        engine.train_step(step, 1e-2, make_batch(61, 8, 16, seed=step))
    return {name: np.array(value) for name, value in engine.state_tensors().items()}


def test_dropped_paths_depend_on_seed_step_and_sample_alone() -> None:
    want = run()
    for options in ({"micro_batch_size": 1}, {"micro_batch_size": 2}, {"recompute": True}):
        assert equal(run(**options), want), options
    try:
        mc.set_num_threads(3)
        assert equal(run(), want)
    finally:
        mc.set_num_threads(0)
    assert not equal(run(seed=1), want)
    assert not equal(run(drop_path=0.0), want)


def test_paths_are_dropped_in_training_only_and_alike_in_both_executors() -> None:
    model = mc.Model(dataclasses.replace(SMALL, drop_path=0.5), seed=4)
    plain = mc.Model(SMALL, seed=4)
    batch = make_batch(61, 8, 16)
    assert np.array_equal(model.logits(batch["inputs"]), plain.logits(batch["inputs"]))
    loss, _ = in_both_executors(model, batch, shards=4)
    assert loss != plain.loss_and_gradients(batch, shards=4)[0]


def test_a_packed_row_gives_what_its_documents_give_alone() -> None:
    """Check segments and positions (docs/maths/tokenformer.md, 2.4): 0 0 a 0 0 ... of two documents and padding."""
    for positions in ("learned", "sinusoidal", "rotary", "none"):
        model = mc.Model(dataclasses.replace(SMALL, positions=positions), seed=2)
        rng = np.random.default_rng(1)
        first, second = rng.integers(1, 61, 9), rng.integers(1, 61, 12)
        packed = {
            "inputs": np.concatenate([first, second, [0, 0, 0]])[None],
            "targets": np.full((1, 24), -1),
            "positions": np.concatenate([np.arange(9), np.arange(12), [0, 0, 0]])[None],
            "segments": np.array([1] * 9 + [2] * 12 + [0] * 3)[None],
        }
        if positions == "none":
            del packed["positions"]
        logits = model.logits(packed)[0]
        scale = np.abs(logits).max()
        # float32 on both sides, with the sums in another order.
        assert np.abs(logits[:9] - model.logits(first)).max() < 2e-6 * scale, positions
        assert np.abs(logits[9:21] - model.logits(second)).max() < 2e-6 * scale, positions
        assert np.isfinite(logits).all()


def test_loss_and_gradients_ignore_the_padding_of_a_packed_row() -> None:
    model = mc.Model(SMALL, seed=2)
    batch = make_batch(61, 2, 24, ignored=False)
    batch["segments"] = np.array([[1] * 20 + [0] * 4] * 2, np.int32)
    batch["targets"][:, 20:] = -1
    loss, gradients = model.loss_and_gradients(batch)
    batch["inputs"][:, 20:] = 7  # padding has no effect
    other, others = model.loss_and_gradients(batch)
    assert loss == other
    for name, gradient in gradients.items():
        if name != "embed":
            assert np.array_equal(gradient, others[name]), name


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("norm", ["l2_norm", "softmax", "gelu", "gelu_layer_norm"])
def test_other_normalisations_and_positions_equal_autograd(norm: str, positions: str) -> None:
    eps = {"gelu_layer_norm": 1e-6}.get(norm, 1e-8)
    model = mc.Model(dataclasses.replace(SMALL, normalize_type=norm, positions=positions))
    cfg = Tokenformer(61, 2, 32, 4, (12, 12, 48), 24, norm=norm, eps=eps, positions=positions)
    params = tm.random_params(cfg, seed=3, std=0.3)
    for name, value in params.items():
        model.set_parameter(name, value)
    batch = make_batch(61, 3, 11)
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64)
    loss, gradients = model.loss_and_gradients(batch)
    assert loss == pytest.approx(want.loss, rel=LOSS)
    require_gradients(gradients, want.grads)


def test_initial_values_follow_the_two_programs() -> None:
    config = dataclasses.replace(SMALL, d_model=256, slot_num=300, n_layer=1, vocab_size=400)

    def deviation(name: str, **options: Any) -> float:
        return float(mc.Model(dataclasses.replace(config, **options), seed=1).parameters[name].std())

    # The standard deviation of a sample.
    assert deviation("embed") == pytest.approx(1.0, rel=0.02)
    assert deviation("blocks.0.attn.q.key") == pytest.approx(256**-0.5, rel=0.02)
    assert deviation("blocks.0.attn.o.value") == pytest.approx(300**-0.5, rel=0.02)
    assert deviation("blocks.0.ffn.value") == pytest.approx(1200**-0.5, rel=0.02)
    cut = mc.Model(config, seed=1).parameters["blocks.0.ffn.key"]
    assert np.abs(cut).max() <= 2.274 * 256**-0.5
    # The standard deviation of a sample.
    assert deviation("embed", init="neox") == pytest.approx(0.02, rel=0.02)
    assert deviation("blocks.0.attn.k.key", init="neox") == pytest.approx(0.02, rel=0.02)
    assert deviation("blocks.0.ffn.value", init="neox") == pytest.approx(2 / 256**0.5, rel=0.02)
    untied = dataclasses.replace(config, tie_embeddings=False, vocab_size=4000)
    for block in ({}, {"block": "dense", "d_ff": 64}):
        head = mc.Model(dataclasses.replace(untied, **block), seed=1).parameters["head"]
        # The standard deviation of a sample.
        assert head.std() == pytest.approx(256**-0.5, rel=0.01)
        assert 2.2 < np.abs(head).max() / head.std() < 2.3  # a normal truncated at two standard deviations
    neox = mc.Model(dataclasses.replace(untied, init="neox"), seed=1).parameters["head"]
    assert np.abs(neox).max() / neox.std() > 4
    gains = mc.Model(dataclasses.replace(config, gain_offset=0.0)).parameters["final_norm.gain"]
    assert (gains == 1).all() and not mc.Model(config).parameters["final_norm.gain"].any()


def test_decay_reaches_every_parameter_with_decay_all() -> None:
    config = Config(model=SMALL, train=TrainConfig(batch_size=2, seq_len=8), optim=OptimConfig(decay="all"))
    engine = Engine(config, mc.Model(SMALL))
    assert all(engine.model.store.describe(name)["decay_scale"] == 1 for name in engine.model.parameters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "rotary", "rope_fraction": 0.3}, "rope_fraction"),
        ({"block": "dense", "drop_path": 0.1}, "drop_path"),
        ({"slot_eps": -0.5}, "slot_eps"),
        ({"normalize_type": "l1"}, "normalize_type"),
        ({"slot_num": 0}, "slot_num"),
        ({"n_head": 5}, "d_model"),
    ],
)
def test_bad_configs_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        mc.Trainer(Config(model=dataclasses.replace(SMALL, **options), train=TrainConfig(seq_len=16)))


def test_tokens_shared_by_two_projections_of_one_op_get_both_gradients() -> None:
    from mudd_core import _core, ops
    from mudd_core.graph.recording import Recorder

    rng = np.random.default_rng(2)
    x, key, other, value = (
        rng.standard_normal(s).astype(np.float32) for s in ((2, 5, 8), (6, 8), (6, 8), (6, 8))
    )
    store = _core.ParamStore()
    for name in ("key", "other", "value"):
        store.declare(name, [6, 8], role="slots", fan_in=8, fan_out=6, init="zeros")
    store.allocate()
    for name, array in (("key", key), ("other", other), ("value", value)):
        store.set(0, name, array)
    recorder = Recorder(store, training=True, samples=2, shards=1)

    def parameter(name: str) -> Any:
        return recorder.parameter(name, (6, 8), role="slots", fan_in=8, fan_out=6, init="zeros")

    values = parameter("value")
    a, b = ops.pattention(
        recorder.input("x", (2, 5, 8), "float32"),
        parameter("key"),
        values,
        None,
        None,
        None,
        parameter("other"),
        values,
    )
    total = ops.custom(
        lambda u: u.sum(keepdims=True), lambda d, u: np.broadcast_to(d, u.shape).copy(), ops.add(a, b)
    )
    loss = ops.custom(lambda u: u, lambda d, u: np.ones_like(u), total)
    executor = _core.Executor(recorder.graph, store, losses=[loss.number], keep=[])
    executor.set("x", x)
    executor.run()
    ones = np.ones((2, 5, 8), np.float32)
    gradients = ops.pattention_backward((ones, ones), x, key, value, None, None, None, other, value)
    assert np.allclose(
        executor.gradient("value"), gradients[2] + gradients[7], rtol=REORDERED, atol=REORDERED
    )
    assert np.array_equal(executor.gradient("other"), gradients[6])
