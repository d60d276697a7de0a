"""Tests that only Mixtral needs: capacity, auxiliary losses, loads, alarms, and runs with them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core import ops
from mudd_core.base.errors import UserError
from mudd_core.config import Config, DataConfig, MixtralConfig, OptimConfig, TrainConfig, check_config
from mudd_core.engine import expert_load
from mudd_core.engine.engine import Engine
from mudd_core.engine.expert_load import WINDOW, ExpertLoad, StepMetrics
from mudd_core.graph import scopes
from mudd_core.run.report.progress import fit, step_fields
from mudd_core.run.store.metrics import read_rows
from reference import numpy_moe
from reference import torch_models as tm
from reference import torch_training as tt
from reference.bounds import GRADIENT, LOSS
from reference.torch_mixtral import Mixtral
from small_models import make_batch

OURS = MixtralConfig(
    vocab_size=61, max_seq_len=40, d_model=24, n_layer=2, n_head=4, n_kv_head=2, d_ff=20, n_expert=4
)
THEIRS = Mixtral(61, 2, 24, 4, 2, 20, experts=4)
# our options, the reference's options
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "capacity": ({"capacity_factor": 0.6}, {}),
    "probs": ({"capacity_factor": 0.6, "drop_policy": "probs"}, {}),
    "shard": ({"capacity_factor": 0.5, "capacity_scope": "shard"}, {}),
    "shard_probs": ({"capacity_factor": 0.5, "capacity_scope": "shard", "drop_policy": "probs"}, {}),
    "zero": ({"capacity_factor": 0.4, "full_drop": "zero"}, {"passthrough": False}),
    "per_layer": ({"aux_form": "per_layer", "z_coef": 0.02}, {}),
    "top_1": ({"top_k": 1}, {}),
    "all": ({"top_k": 4, "z_coef": 0.1}, {}),
}


def pair(name: str) -> tuple[mc.Model, Mixtral, dict[str, Any]]:
    ours, theirs = VARIANTS[name]
    shared = {k: v for k, v in ours.items() if k != "full_drop"}
    twin = dataclasses.replace(THEIRS, aux_coef=0.3, **shared, **theirs)
    params = {k: v * (3 if "router" in k else 1) for k, v in tm.random_params(twin, std=0.15).items()}
    model = mc.Model(dataclasses.replace(OURS, aux_coef=0.3, **ours))
    for key, value in params.items():
        model.set_parameter(key, np.asarray(value, np.float32))
    return model, twin, params


@pytest.mark.parametrize("name", VARIANTS)
def test_every_policy_equals_autograd(name: str) -> None:
    model, twin, params = pair(name)
    batch = make_batch(61, 3, 17)
    extra = {"key_mask": np.ones((3, 17), np.int32)}
    extra["key_mask"][1, 12:] = 0
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], twin, dtype=torch.float64, **extra)
    loss, gradients = in_both_executors(model, {**batch, **extra})
    assert loss == pytest.approx(want.loss, rel=LOSS)
    largest = max(np.abs(g).max() for g in want.grads.values())
    for key, gradient in want.grads.items():
        scale = max(np.abs(gradient).max(), 1e-3 * largest)
        assert np.abs(gradients[key] - gradient).max() <= GRADIENT * scale, key
    nats, count, _ = model.evaluate(batch)
    assert nats / count < model.loss(batch)  # evaluation excludes the auxiliary losses


def test_the_example_of_the_benchmark() -> None:
    """Check S = 4, E = 4, k = 2, factor 1: with these choices token 2 is dropped by expert 1, and so is token 3."""
    choices = np.array([[1, 0], [1, 2], [1, 3], [0, 1]])
    x = np.zeros((1, 4, 4), np.float32)
    for t, (first, second) in enumerate(choices):
        x[0, t, first], x[0, t, second] = 3.0, 2.0
    gates, experts, metrics = ops.moe_route(x, np.eye(4, dtype=np.float32), top_k=2, capacity_factor=1.0)
    assert experts[0].tolist() == [[1, 0], [1, 2], [-1, 3], [0, -1]]
    assert (gates[0, 2, 0] == 0) and gates[0, 2, 1] == pytest.approx(1 / (1 + np.e))  # not normalised again
    assert metrics[0, :4].tolist() == [2, 4, 1, 1] and metrics[0, 8:16].tolist() == [2, 2, 1, 1, 0, 2, 0, 0]


def test_a_token_without_experts_passes_its_normalised_state_on() -> None:
    x, w = np.ones((1, 3, 2), np.float32), np.zeros((2, 2), np.float32)
    gates, experts, _ = ops.moe_route(x, w, top_k=1, capacity_factor=0.67)
    assert experts[0, :, 0].tolist() == [0, -1, -1]  # for equal logits the lower expert wins
    stack = np.zeros((2, 2, 3), np.float32)
    down = np.zeros((2, 3, 2), np.float32)
    y = ops.grouped_gemm(x * 5, gates, experts, stack, stack, down, x)
    assert y[0].tolist() == [[1, 1], [6, 6], [6, 6]]
    assert (ops.grouped_gemm(x * 5, gates, experts, stack, stack, down, x, full_drop="zero") == x).all()


def test_scope_batch_averages_over_all_shards_and_wants_one_run() -> None:
    model, _, _ = pair("per_layer")
    batch = make_batch(61, 4, 9, ignored=False)
    whole = mc.Model(dataclasses.replace(model.config, aux_scope="batch"))
    for key, view in model.parameters.items():
        whole.set_parameter(key, view)
    # Losses are summed in float64.
    assert whole.loss(batch, shards=4) == pytest.approx(model.loss(batch), rel=1e-12)
    alone = [model.loss({key: array[i : i + 1] for key, array in batch.items()}) for i in range(4)]
    assert model.loss(batch, shards=4) == pytest.approx(np.mean(alone), rel=LOSS)
    assert whole.loss(batch, shards=4) != pytest.approx(np.mean(alone), rel=10 * LOSS)  # a different mean
    train = TrainConfig(steps=2, batch_size=4, seq_len=9, micro_batch_size=1)
    with pytest.raises(UserError, match="aux_scope"):
        Engine(Config(model=whole.config, train=train), whole)
    with scopes.shards(4, 2):
        metrics = np.abs(np.random.default_rng(0).normal(size=(4, 19))).astype(np.float32) + 1
        sums, _, _ = ops.moe_balance(np.ones((4, 3), np.int32), metrics, balance=1.0)
    exact = [6 * numpy_moe.balance([half], 4, 2, "pooled")[0] for half in (metrics[:2], metrics[2:])]
    np.testing.assert_allclose(sums, exact, rtol=LOSS)  # multiplied by the counted targets of the shard


def test_decoding_drops_nothing_and_says_so() -> None:
    """With or without a capacity, decoding returns the greedy tokens of a full pass without capacity."""
    free, prompt = mc.Model(dataclasses.replace(OURS, init_std=0.3), seed=1), np.arange(12)
    tokens = list(free.generate(prompt, max_tokens=8))
    assert tokens == [int(row.argmax()) for row in free.logits([*prompt, *tokens])[11:-1]]
    limited = mc.Model(dataclasses.replace(free.config, capacity_factor=1.0), seed=1)
    assert not np.array_equal(limited.logits([*prompt, *tokens]), free.logits([*prompt, *tokens]))
    with pytest.warns(UserWarning, match=r"model.capacity_factor is 1, but decoding drops nothing"):
        assert list(limited.generate(prompt, max_tokens=8)) == tokens
    never = mc.Model(
        dataclasses.replace(free.config, capacity_factor=-1.0), seed=1
    )  # -1 means unlimited, as 0 does in the benchmark's fork
    assert np.array_equal(never.logits(prompt), free.logits(prompt))
    assert list(never.generate(prompt, max_tokens=8)) == tokens
    check_config(Config(model=never.config, train=TrainConfig(seq_len=16)))


def run_config(**train: Any) -> Config:
    model = dataclasses.replace(OURS, jitter=0.1, aux_coef=0.02, capacity_factor=1.0)
    return Config(
        model=model, train=TrainConfig(steps=12, batch_size=4, seq_len=8, **train), optim=OptimConfig(lr=1e-2)
    )


def losses(**train: Any) -> tuple[list[float], Any, dict[str, Any]]:
    config = run_config(**train)
    engine = Engine(config, mc.Model(config.model, seed=1))
    reports = [
        engine.train_step(step, 1e-2, make_batch(61, 4, 8, seed=step, ignored=False)) for step in range(4)
    ]
    assert all(0 < r.aux_loss < r.loss for r in reports)
    return (
        [r.loss for r in reports],
        engine.metrics(),
        {k: np.array(v) for k, v in engine.state_tensors().items()},
    )


def test_jitter_drops_and_figures_do_not_depend_on_micro_batches_or_threads() -> None:
    want, metrics, state = losses()
    assert metrics["expert_load"] and sum(map(sum, metrics["expert_dropped"])) > 0
    for micro_batch in (1, 2):
        got, same, other = losses(micro_batch_size=micro_batch)
        assert got == want and same == metrics
        assert all(np.array_equal(state[key], other[key]) for key in state)
    for threads in (1, 3):
        mc.set_num_threads(threads)
        try:
            assert losses()[0] == want
        finally:
            mc.set_num_threads(0)
    assert losses(seed=2)[0] != want  # the seed of the jitter


@pytest.mark.parametrize("name", ["mixtral/tiny", "mixtral/mixtral822"])
def test_rows_with_ignored_targets_train_alike_in_any_micro_batch(name: str) -> None:
    """The benchmark's loss without accumulation: the mean over a batch's counted targets (docs/maths/moe.md, 6.2)."""
    batch = make_batch(61, 4, 12)
    batch["targets"][1, 5:] = -100
    seen = []
    for micro_batch in (0, 1, 2):
        train = TrainConfig(steps=3, batch_size=4, seq_len=12, logical_shards=4, micro_batch_size=micro_batch)
        config = Config(model=OURS, train=train, loss=mc.load_config(name).loss)
        trainer = mc.Trainer(config, model=mc.Model(OURS, seed=0))
        seen.append((trainer.step(batch).loss, np.array(trainer.model.parameters["embed"])))
    assert all(loss == seen[0][0] and np.array_equal(w, seen[0][1]) for loss, w in seen)


def sums_of(kept: Any, dropped: Any = 0) -> Any:
    """Return metrics of two layers and three experts, without probabilities."""
    f = np.zeros((2, 15))
    f[:, :3] = f[:, 6:9] = kept
    f[:, 9:12] = dropped
    f[:, 13] = 6
    return f.ravel()


def test_alarms_name_layer_and_expert_after_a_hundred_steps() -> None:
    load = ExpertLoad(2, 3, 12)
    for step in range(WINDOW):
        assert load.alarms() == [] and "expert_alarms" not in load.row()
        load.add_step(step, sums_of([[4, 4, 4], [12, 0, 0] if step else [6, 3, 3]]))
    assert load.alarms() == [
        "layer 1 expert 1 at 0.01 of even load",
        "layer 1 expert 2 at 0.01 of even load",
    ]
    row = load.row()
    assert row["expert_load"] == [[1, 1, 1], [3, 0, 0]] and len(row["expert_alarms"]) == 2
    plain = {"step": 3, "loss": 1.0, "lr": 1.0, "grad_norm": 1.0, "tokens_per_second": 1.0, "peak_share": 0.1}
    line = fit(step_fields({**row, **plain}, 9, 1.0))
    assert "alarm: layer 1 expert 1 at 0.01 of even load" in line
    for step in range(WINDOW, WINDOW + 20):
        load.add_step(step, sums_of([[4, 4, 4], [0, 6, 6]]))
    assert load.alarms() == []
    other = ExpertLoad(2, 3, 12)
    other.load_state({key: value.copy() for key, value in load.state().items()})
    for step in range(WINDOW + 20, WINDOW + 90):
        for each in (load, other):
            each.add_step(step, sums_of([[12, 0, 0], [4, 4, 4]]))
        assert other.alarms() == load.alarms()
    eight = ExpertLoad(1, 8, 16)
    for step in range(WINDOW):
        f = np.zeros(35)
        f[:8] = f[16:24] = [7, 2, 2, 1, 1, 1, 1, 1]
        eight.add_step(step, f)
    assert eight.alarms() == ["layer 0 expert 0 at 3.50 of even load"]


def test_lost_slots_are_an_error() -> None:
    load = ExpertLoad(2, 3, 12)
    load.add_step(0, sums_of([[4, 4, 4], [5, 3, 2]], [[0, 0, 0], [0, 1, 1]]))
    with pytest.raises(RuntimeError, match="layer 1: 10 routed and 1 dropped slots, expected 12"):
        load.add_step(1, sums_of([[4, 4, 4], [5, 3, 2]], [[0, 0, 0], [0, 0, 1]]))


def test_figures_say_what_the_routers_did() -> None:
    config = dataclasses.replace(run_config(), model=dataclasses.replace(OURS, capacity_factor=0.75))
    engine = Engine(config, mc.Model(config.model, seed=1))
    batch = make_batch(61, 4, 8, ignored=False)
    engine.train_step(0, 0.0, batch)
    metrics = StepMetrics.of(np.array(engine._steps.first.metrics[:-2]), 2, 4)
    assert (metrics.routed.sum(1) == 64).all() and (metrics.tokens == 32).all()
    assert np.array_equal(metrics.routed, metrics.kept + metrics.dropped) and metrics.dropped.sum() > 0
    assert (metrics.kept <= 4 * 3).all()  # floor(8 * 2 / 4 * 0.75) slots of each of the four sequences
    assert np.allclose(metrics.probability.sum(1), 32) and (metrics.entropy / 32 <= np.log(4) + 1e-6).all()
    assert expert_load.for_model(mc.config.TransformerPPConfig(), 8) is None


def test_a_run_logs_loads(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text\n" for i in range(300)))
    config = dataclasses.replace(
        run_config(save_every=4, log_every=2),
        model=dataclasses.replace(OURS, vocab_size=0, jitter=0.1, aux_coef=0.02),
        data=DataConfig(path=str(text), tokenizer="bytes", cache_dir=str(tmp_path / "cache")),
    )
    with mc.Trainer(config, tmp_path / "run") as trainer:
        trainer.fit()
    first = next(iter(read_rows(tmp_path / "run" / "metrics.jsonl")))
    assert len(first["expert_load"]) == 2 and len(first["expert_load"][0]) == 4 and "router_entropy" in first
