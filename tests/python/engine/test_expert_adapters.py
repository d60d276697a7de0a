"""Adapters of experts: gradients against autograd, both executors, ranks, merged weights, and errors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, LoraConfig, MeshConfig, OptimConfig, TrainConfig, TuneConfig
from mudd_core.engine.lora import is_adapter, merged_tensors
from rank_runs import train
from reference import bounds
from reference import torch_training as tt
from small_models import CASES, make, make_batch

Array = np.ndarray[Any, np.dtype[Any]]
BATCH, LENGTH = 4, 9
RANK, ALPHA = 5, 8.0
LORA = LoraConfig(rank=RANK, alpha=ALPHA, targets="all,gate_up,down")


def adapted(case: str, lora: LoraConfig = LORA) -> tuple[mc.Model, Any, dict[str, Array]]:
    """Return the model of a case with adapters that change its logits, the reference's config, and all weights."""
    base, theirs, params = make(case, whole_batch=True)
    model = mc.Model(base.config, lora=lora, seed=1)
    rng = np.random.default_rng(2)
    for name in model.store.names():
        if is_adapter(name):
            random = name.endswith("lora_b")
            value = rng.normal(size=model.parameters[name].shape) * 0.1 if random else model.parameters[name]
            params[name] = np.array(value, np.float32)
        model.set_parameter(name, params[name])
    return model, theirs, params


def pairs_of(params: dict[str, Array]) -> dict[str, list[tuple[str, Any, Any, Any]]]:
    """Return (weight, A, B, slice of B) in float64 for each weight that an adapter changes, by the adapter."""
    found: dict[str, list[tuple[str, Any, Any, Any]]] = {}
    for layer in (name.removesuffix(".lora_a") for name in params if name.endswith("lora_a")):
        a, b = (params[f"{layer}.lora_{one}"].astype(np.float64) for one in "ab")
        outer = layer.removesuffix("gate_up")
        whole = [layer] if outer == layer else [f"{outer}gate", f"{outer}up"]
        rows = [slice(n * a.shape[-1], (n + 1) * a.shape[-1]) for n in range(len(whole))]
        found[layer] = [(f"{w}.w", a, b[..., at, :], at) for w, at in zip(whole, rows, strict=True)]
    return found


@pytest.mark.parametrize("case", ["mixtral"])
def test_gradients_follow_autograd_in_both_executors(case: str) -> None:
    model, theirs, params = adapted(case)
    batch = make_batch(theirs.vocab_size, BATCH, LENGTH)
    scale, pairs = ALPHA / RANK, pairs_of(params)
    assert any(name.endswith("gate_up") for name in pairs) and any(
        name.endswith("ffn.down") for name in pairs
    )
    exact = {name: value.astype(np.float64) for name, value in params.items() if not is_adapter(name)}
    for whole, a, b, _ in (one for of in pairs.values() for one in of):
        exact[whole] += scale * a @ b
    want = tt.loss_and_grads(exact, batch["inputs"], batch["targets"], theirs, dtype=tt.torch.float64)
    loss, gradients = model.loss_and_gradients(batch)
    assert abs(loss - want.loss) <= bounds.LOSS * abs(want.loss)
    assert sorted(gradients) == sorted(f"{layer}.lora_{one}" for layer in pairs for one in "ab")
    for layer, of in pairs.items():
        da, db = 0, np.zeros(params[f"{layer}.lora_b"].shape)
        for whole, a, b, at in of:
            dw = np.asarray(want.grads[whole], np.float64)
            da = da + scale * dw @ b.swapaxes(-1, -2)
            db[..., at, :] = scale * a.swapaxes(-1, -2) @ dw
        for name, gradient in ((f"{layer}.lora_a", da), (f"{layer}.lora_b", db)):
            far = np.abs(gradients[name] - gradient).max() / np.abs(gradient).max()
            assert far <= bounds.GRADIENT, (name, far)
    for shards in (1, 4):
        in_both_executors(model, batch, shards)


def test_a_merged_model_has_the_same_logits_and_text() -> None:
    model, theirs, params = adapted("mixtral")
    plain, changed = mc.Model(model.config), {one[0]: one for of in pairs_of(params).values() for one in of}
    for name, tensor in merged_tensors(model.parameters, model.store).items():
        value, want = np.asarray(tensor), params[name].astype(np.float64)
        if name in changed:
            want = want + ALPHA / RANK * changed[name][1] @ changed[name][2]
        plain.set_parameter(name, value)
        assert np.abs(value - want).max() <= 4 * bounds.EPSILON * np.abs(want).max(), name
    ids = make_batch(theirs.vocab_size, 2, LENGTH)["inputs"]
    want = plain.logits(ids)
    assert np.abs(model.logits(ids) - want).max() <= bounds.LOGITS * np.abs(want).max()
    assert list(model.generate([3, 5], max_tokens=6)) == list(plain.generate([3, 5], max_tokens=6))


def run_config(lora: LoraConfig = LORA, **settings: Any) -> Config:
    """Return a run of adapters of a Mixtral whose experts are large enough for two ranks."""
    sizes = {"batch_size": 8, "seq_len": 16, "seed": 5, "logical_shards": 8, "threads": 1}
    shape = dataclasses.replace(
        CASES["mixtral"][0], vocab_size=61, max_seq_len=16, n_expert=4, d_model=96, d_ff=128
    )
    return Config(
        name="test",
        model=shape,
        train=TrainConfig(**{**sizes, **settings}),
        optim=OptimConfig(lr=3e-3, weight_decay=0.1),
        tune=TuneConfig(method="lora"),
        lora=lora,
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ranks_and_micro_batches_have_the_bits_of_one(precision: str) -> None:
    config = run_config(dataclasses.replace(LORA, rank=64), precision=precision)
    want = train(config, 1)
    assert any(name.endswith("gate_up.lora_a") for name in want.state)
    assert train(config, 2) == want
    assert train(run_config(config.lora, precision=precision, micro_batch_size=2), 1) == want
    assert train(run_config(config.lora, precision=precision, recompute=True, threads=2), 1) == want
    for mesh in (MeshConfig(zero=3), MeshConfig(expert=2), MeshConfig(expert=2, zero=3)):
        got = train(dataclasses.replace(config, mesh=mesh), 2)
        assert got.losses == want.losses and got.norms == want.norms, mesh
        assert {name for name in want.state if is_adapter(name)} <= got.state.keys()
        assert all(value == want.state[name] for name, value in got.state.items()), mesh


def test_adapters_too_small_for_the_ranks_of_their_experts_are_refused() -> None:
    group = _core.ExpertGroup(2, 0, 2)
    told = r"\[mesh\] expert=2: the experts of a rank have 960 elements in blocks.0.ffn.gate_up.lora_a; .* lora.rank=64"
    with pytest.raises(UserError, match=told):
        mc.Model(run_config().model, lora=LORA, experts=group, booked_only=True)
    mc.Model(run_config().model, lora=dataclasses.replace(LORA, rank=64), experts=group, booked_only=True)


def test_targets_of_experts_are_named_and_all_means_the_linear_layers() -> None:
    def names(case: str, targets: str) -> set[str]:
        model = mc.Model(CASES[case][0], lora=LoraConfig(2, targets=targets), booked_only=True)
        return {name.removesuffix(".lora_a") for name in model.store.names() if name.endswith("lora_a")}

    experts = {f"blocks.{n}.ffn.{one}" for n in range(3) for one in ("gate_up", "down")}
    linears = names("mixtral", "all")
    assert linears == {f"blocks.{n}.attn.{one}" for n in range(3) for one in "qkvo"}
    assert names("mixtral", "gate_up, down") == experts
    assert names("mixtral", "all,gate_up,down") == names("mixtral", "blocks.*") == linears | experts
    assert names("mixtral", "blocks.1.ffn.*") == {"blocks.1.ffn.gate_up", "blocks.1.ffn.down"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"dropout": 0.1},
            r"lora.dropout: expected 0, because blocks.0.ffn.down .* got 0.1; type lora.dropout=0",
        ),
        ({"init": "pissa"}, r"lora.init: expected default, .* leave the experts out of lora.targets"),
        (
            {"targets": "q,up_proj"},
            r"'up_proj'; the model has q, k, v, o, gate_up, down, .* add gate_up,down$",
        ),
        ({"targets": "mlp.experts.gate_up_proj"}, "add gate_up,down$"),
        ({"targets": "block_sparse_moe.experts.0.w1"}, "add gate_up,down$"),
        ({"targets": "gate"}, "add gate_up,down$"),
    ],
)
def test_settings_that_adapters_of_experts_lack_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        mc.Model(CASES["mixtral"][0], lora=dataclasses.replace(LORA, **settings))
