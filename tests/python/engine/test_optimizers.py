"""Lion, SGD and the options of the update in whole training steps; decay modes; moments in a checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from mudd_core import _core
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.config.optim import SPECS
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from reference import numpy_updates
from reference import torch_training as tt
from small_models import CASES, make, make_batch

NAME, BATCH, LENGTH, LR = "llama_gqa", 4, 9, 2e-2
ELEMENTWISE = [spec.name for spec in _core.optimizer_specs() if not (spec.whole_matrices or spec.by_rows)]


def config(**optim: Any) -> Config:
    return Config(
        name="test",
        model=CASES[NAME][0],
        train=TrainConfig(steps=10, batch_size=BATCH, seq_len=LENGTH),
        optim=OptimConfig(**{"lr": LR, "weight_decay": 0.1, "clip": 0.5, "decay": "all", **optim}),
    )


def batches(count: int) -> list[dict[str, Any]]:
    return [make_batch(61, BATCH, LENGTH, seed=seed) for seed in range(count)]


def clipped(params: dict[str, Any], cfg: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients of the reference, clipped by global norm."""
    grads = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64).grads
    norm = float(np.sqrt(sum((g**2).sum() for g in grads.values())))
    return {key: g * min(1.0, 0.5 / norm) for key, g in grads.items()}


@pytest.mark.parametrize("name", ["lion", "sgd"])
def test_steps_follow_the_formulas(name: str) -> None:
    model, cfg, params = make(NAME)
    engine = Engine(config(name=name, beta2=0.98), model)
    want = {key: np.asarray(value, np.float64) for key, value in params.items()}
    moments = {key: np.zeros_like(value) for key, value in want.items()}
    for step, batch in enumerate(batches(3)):
        lr = LR / (step + 1)
        assert engine.train_step(step, lr, batch).finite
        for key, g in clipped(want, cfg, batch).items():
            if name == "lion":
                want[key], moments[key] = numpy_updates.lion(
                    want[key], g, moments[key], lr=lr, beta1=0.9, beta2=0.98, decay=0.1 * lr
                )
            else:
                want[key], moments[key] = numpy_updates.sgd(
                    want[key], g, moments[key], lr=lr, momentum=0.9, decay=0.1 * lr
                )
    for key, value in want.items():
        difference = np.abs(model.parameters[key] - value)
        # Lion's sign of a gradient near zero may differ, which moves the weight by twice the rate.
        assert np.mean(difference > 1e-5) <= (2e-3 if name == "lion" else 0.0), key
        assert difference.max() <= (5 * LR if name == "lion" else 1e-5), key
    if name == "sgd":  # the same without decay, by torch
        plain, cfg, params = make(NAME)
        engine = Engine(config(name="sgd", weight_decay=0.0), plain)
        leaves = {key: torch.tensor(value, requires_grad=True) for key, value in params.items()}
        optimizer = torch.optim.SGD(leaves.values(), lr=LR, momentum=0.9, nesterov=True)
        for step, batch in enumerate(batches(3)):
            engine.train_step(step, LR, batch)
            now = {key: leaf.detach().numpy().copy() for key, leaf in leaves.items()}
            for key, g in clipped(now, cfg, batch).items():
                leaves[key].grad = torch.tensor(g, dtype=torch.float32)
            optimizer.step()
        for key, leaf in leaves.items():
            # PyTorch computes in float32 too, with its sums in another order.
            np.testing.assert_allclose(plain.parameters[key], leaf.detach().numpy(), atol=1e-5, err_msg=key)


@pytest.mark.parametrize("options", [{"name": "sgd", "nesterov": False}, {"name": "adamw", "eps_root": 1e-3}])
def test_plain_sgd_and_eps_root_follow_the_formulas(options: dict[str, Any]) -> None:
    model, cfg, params = make(NAME)
    engine = Engine(config(**options), model)
    want = {key: np.asarray(value, np.float64) for key, value in params.items()}
    first, second = ({key: np.zeros_like(value) for key, value in want.items()} for _ in range(2))
    for step, batch in enumerate(batches(3)):
        assert engine.train_step(step, LR, batch).finite
        for key, g in clipped(want, cfg, batch).items():
            if options["name"] == "sgd":
                want[key], first[key] = numpy_updates.sgd(
                    want[key], g, first[key], lr=LR, momentum=0.9, decay=0.1 * LR, nesterov=False
                )
            else:
                want[key], first[key], second[key] = numpy_updates.adamw(
                    want[key], first[key], second[key], g, step + 1, LR, decay=0.1, eps_root=1e-3
                )
    for key, value in want.items():
        # PyTorch computes in float32 too, with its sums in another order.
        np.testing.assert_allclose(model.parameters[key], value, atol=1e-5, err_msg=key)


def weights_after(steps: int, **optim: Any) -> tuple[Model, Engine]:
    model, _, _ = make(NAME)
    engine = Engine(config(**optim), model)
    for step, batch in enumerate(batches(steps)):
        engine.train_step(step, LR / (step + 1), batch)
    return model, engine


def test_adam_pax_is_adamw() -> None:
    ours, _ = weights_after(2, name="adam_pax")
    adamw, _ = weights_after(2, name="adamw")
    assert all(np.array_equal(ours.parameters[key], value) for key, value in adamw.parameters.items())


def test_independent_decay_is_not_multiplied_by_any_rate() -> None:
    free, _ = weights_after(1, weight_decay=0.0)
    before = {key: np.array(value) for key, value in make(NAME)[0].parameters.items()}
    for mode, share in (("coupled", 0.1 * LR), ("independent", 0.1)):
        decayed, _ = weights_after(1, weight_decay=0.1, decay_mode=mode)
        for key, value in decayed.parameters.items():
            # One more rounding of each weight.
            np.testing.assert_allclose(value, free.parameters[key] - share * before[key], atol=1e-6)
    model, _, _ = make(NAME)  # at half the peak rate the decay is halved: the schedule applies to it
    Engine(config(weight_decay=0.1, decay_mode="independent"), model).train_step(0, LR / 2, batches(1)[0])
    plain, _, _ = make(NAME)
    Engine(config(weight_decay=0.0), plain).train_step(0, LR / 2, batches(1)[0])
    for key, value in model.parameters.items():
        # One more rounding of each weight.
        np.testing.assert_allclose(value, plain.parameters[key] - 0.05 * before[key], atol=1e-6)


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("moment", ["fp32", "bf16"])
def test_state_goes_through_a_checkpoint(name: str, moment: str) -> None:
    _, engine = weights_after(2, name=name, moment_dtype=moment)
    state = {key: np.array(value) for key, value in engine.state_tensors().items()}
    second = any(key.startswith("second_moment/") for key in state)
    assert second == (SPECS[name].moments == 2)
    assert state["first_moment/embed"].dtype == (np.float32 if moment == "fp32" else np.uint16)
    model, _, _ = make(NAME)
    resumed = Engine(config(name=name, moment_dtype=moment), model)
    resumed.load_state_tensors(state)
    batch = make_batch(61, BATCH, LENGTH, seed=9)
    for e in (engine, resumed):
        e.train_step(2, LR, batch)
    assert all(np.array_equal(v, resumed.state_tensors()[key]) for key, v in engine.state_tensors().items())


def test_a_bf16_moment_takes_half_the_memory_and_nearly_the_same_steps() -> None:
    full, engine = weights_after(3)
    half, small = weights_after(3, moment_dtype="bf16")
    # AdamW's second moment stays fp32, so 6 of 8 bytes
    assert small.memory_report()["moments"] * 4 == engine.memory_report()["moments"] * 3
    distances = [np.abs(half.parameters[key] - value).max() for key, value in full.parameters.items()]
    assert 0 < max(distances) < 0.1 * LR


@pytest.mark.parametrize("moment", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_update_that_writes_infinity_is_reported(name: str, moment: str) -> None:
    for plane in ("", "first_moment/", "second_moment/"):
        _, engine = weights_after(1, name=name, moment_dtype=moment)
        tensors = engine.state_tensors(writable=True)
        if plane + "final_norm.gain" not in tensors:
            continue
        batch = make_batch(61, BATCH, LENGTH, seed=9)
        assert not engine.train_step(1, LR, batch).spoilt
        weights = tensors[plane + "blocks.1.ffn.up.w"]
        if plane:
            weights[-1, -1] = 0x7F80 if weights.dtype == np.uint16 else np.inf
            report = engine.train_step(2, LR, batch)
        else:
            report = engine.train_step(2, 1e39, batch)
        assert report.finite and report.spoilt, plane


def test_limits_of_loss_and_gradient_norm_stop_an_update() -> None:
    _, engine = weights_after(1)
    before = {key: np.array(value) for key, value in engine.state_tensors().items()}
    batch = make_batch(61, BATCH, LENGTH, seed=9)
    for limits in ((0.0, np.inf), (np.inf, 0.0)):
        report = engine.train_step(1, LR, batch, limits)
        assert report.spike and report.finite and not report.spoilt
        after = engine.state_tensors()
        assert all(np.array_equal(value, after[key]) for key, value in before.items())
    limits = (report.loss, report.grad_norm)
    assert not engine.train_step(1, LR, batch, limits).spike  # a value equal to the limit is allowed


def test_adamw_on_arrays_is_that_of_torch() -> None:
    rng = np.random.default_rng(5)
    w = rng.standard_normal((7, 33)).astype(np.float32)
    leaf = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([leaf], lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    first, second = np.zeros_like(w), np.zeros_like(w)
    for step in range(1, 11):
        gradient = rng.standard_normal(w.shape).astype(np.float32)
        w, first, second = mc.ops.adamw(w, gradient, first, second, lr=LR, decay=0.1 * LR, step=step)
        leaf.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    # ten updates, each with two roundings of half an epsilon of the largest weight
    bound = 10 * 2.0**-23 * np.abs(w).max()
    assert np.abs(w - leaf.detach().numpy()).max() <= bound
