"""Low-rank adapters: gradients against autograd, both executors, ranks, which parameters are updated, and errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core.base.errors import UserError
from mudd_core.config import Config, LoraConfig, OptimConfig, TrainConfig, TuneConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.lora import is_adapter, merged_tensors
from rank_runs import batch_of, train
from reference import bounds
from reference import torch_training as tt
from small_models import CASES, make, make_batch

Array = np.ndarray[Any, np.dtype[Any]]
BATCH, LENGTH = 4, 9
RANK, ALPHA = 5, 8.0
LORA = LoraConfig(rank=RANK, alpha=ALPHA)
FAMILIES = [
    "llama_gqa",
    "gpt2",
    "mudd",
    "mudd_pythia",
    "mup",
    "mup_swiglu_mqa",
    "mixtral",
    "tokenformer_baseline",
]


def adapted(case: str, lora: LoraConfig = LORA, **options: Any) -> tuple[mc.Model, Any, dict[str, Array]]:
    """Return the model of a case with adapters that change its logits, the reference's config, and base weights."""
    base, theirs, params = make(case, whole_batch=True)
    model = mc.Model(base.config, lora=lora, seed=1, **options)
    rng = np.random.default_rng(2)
    for name in model.store.names():
        if name.endswith("lora_b"):
            params[name] = rng.normal(size=model.parameters[name].shape).astype(np.float32) * 0.1
        elif name.endswith("lora_a"):
            params[name] = np.array(model.parameters[name])
        model.set_parameter(name, params[name])
    return model, theirs, params


def merged(params: dict[str, Array], scale: float) -> dict[str, Array]:
    """Return W + scale A B of every adapted matrix in float64, and the other weights of the base."""
    whole = {name: value.astype(np.float64) for name, value in params.items() if not is_adapter(name)}
    for name in params:
        if name.endswith("lora_a"):
            layer = name.removesuffix(".lora_a")
            whole[f"{layer}.w"] += scale * params[name].astype(np.float64) @ params[f"{layer}.lora_b"]
    return whole


@pytest.mark.parametrize("case", FAMILIES)
def test_gradients_follow_autograd_in_both_executors(case: str) -> None:
    model, theirs, params = adapted(case)
    batch = make_batch(theirs.vocab_size, BATCH, LENGTH)
    scale = ALPHA / RANK
    exact = merged(params, scale)
    want = tt.loss_and_grads(exact, batch["inputs"], batch["targets"], theirs, dtype=tt.torch.float64)
    loss, gradients = model.loss_and_gradients(batch)
    assert abs(loss - want.loss) <= bounds.LOSS * abs(want.loss)
    layers = [name.removesuffix(".lora_a") for name in params if name.endswith("lora_a")]
    assert sorted(gradients) == sorted(f"{layer}.lora_{one}" for layer in layers for one in "ab")
    for layer in layers:
        dw = np.asarray(want.grads[f"{layer}.w"], np.float64)
        a, b = (params[f"{layer}.lora_{one}"].astype(np.float64) for one in "ab")
        for name, gradient in ((f"{layer}.lora_a", scale * dw @ b.T), (f"{layer}.lora_b", scale * a.T @ dw)):
            far = np.abs(gradients[name] - gradient).max() / np.abs(gradient).max()
            assert far <= bounds.GRADIENT, (name, far)
    for shards in (1, 4):
        in_both_executors(model, batch, shards)


def test_a_merged_model_has_the_same_logits() -> None:
    model, theirs, params = adapted("gpt2")
    plain = mc.Model(model.config)
    for name, tensor in merged_tensors(model.parameters, model.store).items():
        value = np.asarray(tensor)
        plain.set_parameter(name, value)
        want = merged(params, ALPHA / RANK)[name]
        assert np.abs(value - want).max() <= 4 * bounds.EPSILON * np.abs(want).max(), name
    ids = make_batch(theirs.vocab_size, 2, LENGTH)["inputs"]
    want = plain.logits(ids)
    assert np.abs(model.logits(ids) - want).max() <= bounds.LOGITS * np.abs(want).max()
    assert list(model.generate([3, 5], max_tokens=6)) == list(plain.generate([3, 5], max_tokens=6))


def test_a_saved_model_keeps_its_adapters(tmp_path: Path) -> None:
    model, theirs, _ = adapted("llama_gqa")
    loaded = mc.Model.load(model.save(tmp_path / "model"))
    ids = make_batch(theirs.vocab_size, 2, LENGTH)["inputs"]
    assert loaded.lora == model.lora and np.array_equal(loaded.logits(ids), model.logits(ids))


def run_config(case: str, lora: LoraConfig = LORA, **settings: Any) -> Config:
    """Return a run of adapters on prepared batches."""
    sizes = {"batch_size": 8, "seq_len": 16, "seed": 5, "logical_shards": 8, "threads": 1}
    return Config(
        name="test",
        model=dataclasses.replace(CASES[case][0], vocab_size=61, max_seq_len=16),
        train=TrainConfig(**{**sizes, **settings}),
        optim=OptimConfig(lr=3e-3, weight_decay=0.1),
        tune=TuneConfig(method="lora"),
        lora=lora,
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("case", ["llama_gqa", "mup", "mixtral"])
def test_ranks_and_micro_batches_have_the_bits_of_one(case: str, precision: str) -> None:
    lora = dataclasses.replace(LORA, dropout=0.2)
    want = train(run_config(case, lora, precision=precision), 1)
    assert train(run_config(case, lora, precision=precision), 2) == want
    assert train(run_config(case, lora, precision=precision, micro_batch_size=2), 1) == want
    assert train(run_config(case, lora, precision=precision, recompute=True, threads=2), 1) == want
    cut = run_config(case, lora, precision=precision)
    cut = dataclasses.replace(cut, mesh=dataclasses.replace(cut.mesh, zero=3))
    assert train(cut, 2).state == want.state


def test_only_adapters_have_gradients_moments_and_updates() -> None:
    config = run_config("llama_gqa")
    model = mc.Model(config)
    before = model.state_dict(copy=True)
    engine = Engine(config, model)
    report = [engine.train_step(step, 3e-3, batch_of(config, step)) for step in range(3)][-1]
    assert report.finite and report.loss > 0
    saved = {
        name.rpartition("/")[2]
        for name in engine.state_tensors()
        if not name.startswith(("updates", "expert"))
    }
    assert saved == {name for name in model.store.names() if is_adapter(name)} and saved
    changed = {name for name, value in model.parameters.items() if not np.array_equal(value, before[name])}
    assert changed == saved
    count = sum(before[name].size for name in saved)
    assert engine.memory_report()["moments"] <= 8 * count + 64 * len(saved) * 2


def test_backward_ends_below_the_lowest_adapter() -> None:
    def computed(targets: str) -> float:
        engine = Engine(
            config := run_config("llama_gqa", LoraConfig(RANK, targets=targets)), mc.Model(config)
        )
        return float(engine.executor.flops[0])

    one, two, three = (computed(f"blocks.{layer}.ffn.down") for layer in (2, 1, 0))
    assert (
        two - one > 0 and abs((three - two) - (two - one)) < 1e-6 * one
    )  # each further block costs one backward more
    model = CASES["llama_gqa"][0]
    block = (
        8 * 16 * (2 * model.d_model * model.d_model + 2 * model.d_model * 12 + 3 * model.d_model * model.d_ff)
    )
    assert two - one < 2.0 * 2 * block  # only dx, no dW


def test_dropout_drops_in_training_alone() -> None:
    lora = dataclasses.replace(LORA, dropout=0.5)
    model, theirs, _ = adapted("llama_gqa", lora)
    plain, _, _ = adapted("llama_gqa")
    batch = make_batch(theirs.vocab_size, BATCH, LENGTH)
    assert model.loss(batch) == plain.loss(batch)
    loss, gradients = in_both_executors(model, batch)
    assert loss != plain.loss(batch)
    lowest = "blocks.0.attn.q.lora_a"  # nothing below it trains, but its input has dropout
    assert not np.array_equal(gradients[lowest], plain.loss_and_gradients(batch)[1][lowest])


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_base_in_16_bits_gives_the_bits_of_the_same_numbers(kind: str) -> None:
    base, theirs, _ = make("llama_gqa")
    stored = {name: kind for name in base.store.names() if base.store.describe(name)["may_be_narrow"]}
    half = mc.Model(base.config, lora=LORA, seed=1, stored=stored)
    whole = mc.Model(base.config, lora=LORA, seed=1)
    for name in whole.store.names():
        whole.set_parameter(name, half.parameters[name])
    batch = make_batch(theirs.vocab_size, BATCH, LENGTH)
    (loss, gradients), (want, wanted) = (model.loss_and_gradients(batch) for model in (half, whole))
    assert loss == want and all(np.array_equal(gradients[name], wanted[name]) for name in wanted)


def test_targets_are_names_parts_of_names_or_patterns() -> None:
    def names(case: str, targets: str) -> set[str]:
        model = mc.Model(CASES[case][0], lora=LoraConfig(2, targets=targets), booked_only=True)
        return {name.removesuffix(".lora_a") for name in model.store.names() if name.endswith("lora_a")}

    assert names("llama_gqa", "q, v") == {f"blocks.{n}.attn.{one}" for n in range(3) for one in "qv"}
    assert names("llama_gqa", "blocks.1.*") == {
        *(f"blocks.1.attn.{one}" for one in "qkvo"),
        *(f"blocks.1.ffn.{one}" for one in ("gate", "up", "down")),
    }
    assert names("mixtral", "all") == {f"blocks.{n}.attn.{one}" for n in range(3) for one in "qkvo"}


@pytest.mark.parametrize(
    ("case", "targets", "told"),
    [
        (
            "llama_gqa",
            "q,q_proj",
            r"lora.targets: .*'q_proj'; the model has q, k, v, o, gate, up, down, with full names such as",
        ),
        ("mixtral", "q_proj", r"blocks\.0\.attn\.q$"),
        ("tokenformer", "all", "this tokenformer model has none"),
    ],
)
def test_targets_that_the_model_lacks_are_refused(case: str, targets: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        mc.Model(CASES[case][0], lora=LoraConfig(2, targets=targets))
