"""Muon in whole training steps against torch.optim.Muon in float64; its state, threads and stacks of experts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from mudd_core import _core
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from reference import torch_models as tm
from reference import torch_training as tt
from small_models import CASES, make, make_batch, make_batches

BATCH, LENGTH, LR, STEPS = 8, 17, 2e-3, 20
batches = partial(make_batches, samples=BATCH, length=LENGTH)
EPSILON = 2.0**-23


def config(case: str, **optim: Any) -> Config:
    return Config(
        name="test",
        model=CASES[case][0],
        train=TrainConfig(steps=STEPS, batch_size=BATCH, seq_len=LENGTH),
        optim=OptimConfig(
            **{"name": "muon", "lr": LR, "weight_decay": 0.1, "clip": 0.5, "decay": "all", **optim}
        ),
    )


def is_matrix(about: dict[str, Any]) -> bool:
    return about["role"] in ("matrix", "slots") and len(about["shape"]) >= 2


class Twin:
    """torch.optim.Muon for the matrices, one for each of a stack, and torch.optim.AdamW for the others, in float64."""

    def __init__(self, model: Model, params: dict[str, Any], adjust: str) -> None:
        self.matrices: dict[str, list[Any]] = {}
        self.rest: dict[str, Any] = {}
        self.flips: dict[str, bool] = {}
        for key, value in params.items():
            about = model.store.describe(key)
            whole = torch.tensor(value, dtype=torch.float64)
            if not is_matrix(about):
                self.rest[key] = whole.requires_grad_()
                continue
            # torch's weights are [out, in], and so are slots; all others are [in, out].
            flip = (about["fan_in"], about["fan_out"]) == tuple(about["shape"][-2:])
            parts = whole if whole.dim() == 3 else [whole]
            self.matrices[key] = [(part.T if flip else part).clone().requires_grad_() for part in parts]
            self.flips[key] = flip
        leaves = [part for parts in self.matrices.values() for part in parts]
        self.muon = torch.optim.Muon(leaves, lr=LR, weight_decay=0.1, momentum=0.95, adjust_lr_fn=adjust)
        self.adamw = torch.optim.AdamW(
            self.rest.values(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1
        )

    def parameters(self) -> dict[str, Any]:
        found = dict(self.rest)
        for key, parts in self.matrices.items():
            turned = [part.T if self.flips[key] else part for part in parts]
            found[key] = torch.stack(turned) if len(turned) > 1 else turned[0]
        return found

    def step(self, batch: dict[str, Any], cfg: Any) -> None:
        targets = torch.from_numpy(batch["targets"].astype(np.int64))
        _, loss = tt.training_loss(self.parameters(), tm.make_batch(batch["inputs"]), targets, cfg)
        for optimizer in (self.muon, self.adamw):
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        leaves = [*self.rest.values(), *(part for parts in self.matrices.values() for part in parts)]
        torch.nn.utils.clip_grad_norm_(leaves, 0.5)
        for optimizer in (self.muon, self.adamw):
            optimizer.step()


def rate(shape: tuple[int, ...], fan: tuple[int, int], adjust: str) -> float:
    """Return Muon's rate for a matrix."""
    return LR * (
        0.2 * math.sqrt(max(shape[-2:])) if adjust != "original" else math.sqrt(max(1, fan[1] / fan[0]))
    )


# The rounding of a weight in 20 updates is two times half an epsilon each. For an update, the polynomial is steepest at
# 0, with slope 3.4445, so five iterations multiply an error by at most 485. Errors are 16 epsilons of the gradient
# (reference/bounds.py), and the root of the longer side in the chains of matmuls.
def bound(weights: Any, step: float) -> float:
    update = 485 * (16 + math.sqrt(max(weights.shape[-2:]))) * EPSILON
    return float(STEPS * (EPSILON * np.abs(weights).max() + step * update))


@pytest.mark.parametrize(
    ("case", "adjust"),
    [
        ("llama_gqa", "original"),
        ("llama_gqa", "match_rms_adamw"),
        ("tokenformer", "original"),
        ("mixtral", "match_rms_adamw"),
    ],
)
def test_twenty_steps_equal_torch_muon(case: str, adjust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run torch's code, whose iteration computes in float64 in place of bf16."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.double)
    model, cfg, params = make(case, whole_batch=True)
    engine = Engine(config(case, muon_adjust_lr=adjust), model)
    twin = Twin(model, params, adjust)
    for step, batch in enumerate(batches(case, STEPS)):
        assert engine.train_step(step, LR, batch).finite
        twin.step(batch, cfg)
    for key, value in twin.parameters().items():
        want = value.detach().numpy()
        difference = np.abs(model.parameters[key] - want)
        if key not in twin.matrices:  # bounds of test_steps_equal_torch_adamw
            assert np.mean(difference) <= 1e-4 and difference.max() <= 2 * LR, key
            continue
        about = model.store.describe(key)
        step_size = rate(about["shape"], (about["fan_in"], about["fan_out"]), adjust)
        assert difference.max() <= bound(want, step_size), key
        assert np.abs(want - params[key]).max() > 100 * bound(want, step_size), key


def test_torch_as_it_is_differs_by_bf16() -> None:
    model, cfg, params = make("llama_gqa")
    engine = Engine(config("llama_gqa", muon_adjust_lr="original"), model)
    twin = Twin(model, params, "original")
    for step, batch in enumerate(batches("llama_gqa", 3)):
        engine.train_step(step, LR, batch)
        twin.step(batch, cfg)
    for key in twin.matrices:
        want = twin.parameters()[key].detach().numpy()
        moved = np.abs(want - params[key]).mean()
        # 2^-8 of an entry, amplified by five iterations: a few per cent of the movement.
        assert np.abs(model.parameters[key] - want).mean() < 0.1 * moved, key


def weights_after(steps: int, case: str = "llama_gqa", **optim: Any) -> tuple[Model, Engine]:
    model, _, _ = make(case)
    engine = Engine(config(case, **optim), model)
    for step, batch in enumerate(batches(case, steps)):
        engine.train_step(step, LR, batch)
    return model, engine


@pytest.mark.parametrize("moment", ["fp32", "bf16"])
def test_state_goes_through_a_checkpoint(moment: str) -> None:
    _, engine = weights_after(2, moment_dtype=moment)
    state = {key: np.array(value) for key, value in engine.state_tensors().items()}
    store = engine.model.store
    matrices = {name for name in store.names() if is_matrix(store.describe(name))}
    second = {key.partition("/")[2] for key in state if key.startswith("second_moment/")}
    first = {key.partition("/")[2] for key in state if key.startswith("first_moment/")}
    assert second == set(store.names()) - matrices and first == set(store.names())
    assert len(matrices) == 21
    model, _, _ = make("llama_gqa")
    resumed = Engine(config("llama_gqa", moment_dtype=moment), model)
    resumed.load_state_tensors(state)
    for one in (engine, resumed):
        one.train_step(2, LR, make_batch(61, BATCH, LENGTH, seed=9))
    assert all(np.array_equal(v, resumed.state_tensors()[key]) for key, v in engine.state_tensors().items())


def test_threads_change_no_bit() -> None:
    found = []
    for threads in (1, 3):
        _core.set_num_threads(threads)
        model, _ = weights_after(3, "mixtral")
        found.append({key: np.array(value) for key, value in model.parameters.items()})
    _core.set_num_threads(0)
    assert all(np.array_equal(value, found[1][key]) for key, value in found[0].items())


def test_memory_counts_one_moment_of_matrices_and_the_scratch() -> None:
    _, muon = weights_after(1)
    _, adamw = weights_after(1, name="adamw")
    sizes = {name: math.prod(about["shape"]) for name, about in described(muon).items()}
    matrices = sum(size for name, size in sizes.items() if is_matrix(described(muon)[name]))
    less = adamw.memory_report()["moments"] - muon.memory_report()["moments"]
    assert matrices * 4 <= less <= matrices * 4 + 64 * len(sizes)
    assert muon.memory_report()["arena"] > adamw.memory_report()["arena"]


def described(engine: Engine) -> dict[str, dict[str, Any]]:
    store = engine.model.store
    return {name: store.describe(name) for name in store.names()}


def test_an_update_that_writes_infinity_is_reported() -> None:
    _, engine = weights_after(1)
    engine.state_tensors(writable=True)["first_moment/blocks.1.ffn.up.w"][-1, -1] = np.inf
    assert engine.train_step(1, LR, batches("llama_gqa", 1)[0]).spoilt
