"""optim.second_moment=factored: the formula in float64, torch's Adafactor, equal bits everywhere, state and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from mudd_core import _core
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, config_in_shards, train
from small_models import CASES, DEALT

LR, BETA1, BETA2, EPS = 1e-3, 0.9, 0.95, 1e-8


def config_of(family: str = "llama_gqa", vocabulary: int = 61, mesh: Any = None, **optim: Any) -> Config:
    sizes = {**(DEALT if mesh and "expert" in mesh else {}), "vocab_size": vocabulary, "max_seq_len": 16}
    model = dataclasses.replace(CASES[family][0], **sizes)
    fields = {"lr": LR, "clip": 0.0, "second_moment": "factored", **optim}
    config = config_in_shards(model, optim=OptimConfig(**fields))
    return dataclasses.replace(config, mesh=MeshConfig(**(mesh or {})))


class Formula:
    """AdamW with the factored second moment of Shazeer and Stern 2018, in float64."""

    def __init__(self, weights: dict[str, Any], config: Config) -> None:
        self.optim = config.optim
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}
        self.m = {name: np.zeros_like(value) for name, value in self.w.items()}
        self.v: dict[str, Any] = dict.fromkeys(self.w, 0.0)  # for vectors
        self.rows = {name: np.zeros(value.shape[:-1]) for name, value in self.w.items()}
        self.columns = {name: np.zeros(value.shape[:-2] + value.shape[-1:]) for name, value in self.w.items()}

    def second(self, name: str, squares: Any) -> Any:
        if squares.ndim < 2:
            self.v[name] = BETA2 * self.v[name] + (1 - BETA2) * squares
            return self.v[name]
        self.rows[name] = BETA2 * self.rows[name] + (1 - BETA2) * squares.mean(axis=-1)
        self.columns[name] = BETA2 * self.columns[name] + (1 - BETA2) * squares.mean(axis=-2)
        rows, columns = self.rows[name][..., :, None], self.columns[name][..., None, :]
        return rows * columns / np.maximum(rows.mean(axis=-2, keepdims=True), 1e-300)

    def step(self, t: int, gradients: dict[str, Any]) -> None:
        for name, gradient in gradients.items():
            g = gradient.astype(np.float64)
            self.m[name] = self.optim.beta1 * self.m[name] + (1 - self.optim.beta1) * g
            v = self.second(name, g * g)
            root = np.sqrt(v / (1 - BETA2**t) + self.optim.eps_root) + self.optim.eps
            self.w[name] -= LR / (1 - self.optim.beta1**t) * self.m[name] / root


@pytest.mark.parametrize(
    ("family", "optim"),
    [("llama_gqa", {}), ("mixtral", {"eps_root": 1e-8}), ("mudd", {}), ("tokenformer", {})],
)
def test_updates_are_the_formula_in_float64(family: str, optim: dict[str, Any]) -> None:
    config = config_of(family, weight_decay=0.0, **optim)
    engine = Engine(config, mc.Model(config.model, seed=1))
    want = Formula(engine.model.parameters, config)
    for t in range(1, 13):
        batch = batch_of(config, t)
        gradients = engine.model.loss_and_gradients(batch, shards=8)[1]
        want.step(t, gradients)
        assert engine.train_step(t - 1, LR, batch).finite
        state = engine.state_tensors()
        for name in gradients:
            for plane, factors in (("row_moment", want.rows), ("column_moment", want.columns)):
                assert (f"{plane}/{name}" in state) == (state[name].ndim > 1)
                if state[name].ndim > 1:
                    # A factor is a mean of squares in fp32; each of the updates rounds it once.
                    np.testing.assert_allclose(state[f"{plane}/{name}"], factors[name], rtol=2e-6, atol=1e-30)
            assert (f"second_moment/{name}" in state) == (state[name].ndim < 2)
            # Weights move by about LR for each update, in fp32 with 24 bits.
            np.testing.assert_allclose(state[name], want.w[name], rtol=3e-7 * t, atol=3e-6 * LR * t)


def test_updates_are_those_of_adafactor_in_torch() -> None:
    """torch's decay 1 - beta2_t = step^tau is set to the one of a bias-corrected mean: (1 - beta2) / (1 - beta2^step).

    Its rate is relative to the weights, and it clips an update; both are set so that they change nothing. It has no
    first moment (beta1=0), and its epsilons do not exist in mudd_core.
    """
    config = config_of("mixtral", beta1=0.0, weight_decay=0.0, eps=1e-16)
    engine = Engine(config, mc.Model(config.model, seed=1))
    leaves = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name, value in engine.model.parameters.items()
    }
    assert any(leaf.dim() == 3 for leaf in leaves.values())
    for t in range(1, 13):
        batch = batch_of(config, t)
        gradients = engine.model.loss_and_gradients(batch, shards=8)[1]
        if t == 1:
            groups = [{"params": [leaves[name]]} for name in gradients]
            adafactor = torch.optim.Adafactor(groups, eps=(1e-60, 1e-30), d=1e9, weight_decay=0.0)
        for (name, gradient), group in zip(gradients.items(), adafactor.param_groups, strict=True):
            leaves[name].grad = torch.tensor(gradient, dtype=torch.float64)
            size = float(leaves[name].detach().norm()) / leaves[name].numel() ** 0.5
            group["lr"] = LR / size
            assert group["lr"] < t**-0.5, name  # otherwise torch uses this rate
            if t > 1:
                group["beta2_decay"] = float(np.log((1 - BETA2) / (1 - BETA2**t)) / np.log(t))
        adafactor.step()
        assert engine.train_step(t - 1, LR, batch).finite
        for name, leaf in leaves.items():
            found = engine.model.parameters[name]
            # As in the test of the formula.
            np.testing.assert_allclose(found, leaf.detach().numpy(), rtol=3e-7 * t, atol=3e-6 * LR * t)


WORLDS = [
    (config_of(clip=1.0, groups="lion: role=gain"), ((2, None), (4, None), (2, 1), (4, 2))),
    (config_of(vocabulary=4099, moment_dtype="bf16"), ((2, None), (4, 1))),
    (config_of("mixtral", mesh={"expert": 2}), ((2, None), (4, 2), (8, 2))),
    (config_of("mixtral", mesh={"expert": 2, "zero": 3}), ((4, 1),)),
    (config_of("mudd_experts"), ((4, None),)),
    (config_of(mesh={"zero": 3}), ((2, None), (2, 1), (4, 2))),
    (config_of("mixtral", mesh={"zero": 3}), ((2, 1), (4, 2))),
    (config_of(name="muon", mesh={"zero": 3}), ((4, 1),)),
]


@pytest.mark.parametrize(("config", "worlds"), WORLDS)
def test_worlds_and_micro_batches_have_the_bits_of_one(config: Config, worlds: Any) -> None:
    want = train(dataclasses.replace(config, mesh=MeshConfig()), 1)
    assert any(name.startswith("row_moment/") for name in want.state)
    for world, node_size in worlds:
        assert train(config, world, node_size=node_size) == want, (world, node_size)
    in_runs = dataclasses.replace(config.train, micro_batch_size=2)
    assert train(dataclasses.replace(config, train=in_runs, mesh=MeshConfig()), 1) == want


def test_the_state_is_loaded_again_with_any_threads() -> None:
    config = config_of("mixtral", moment_dtype="bf16")
    engine, other = (Engine(config, mc.Model(config.model, seed=1)) for _ in range(2))
    for step in range(2):
        engine.train_step(step, LR, batch_of(config, step))
    state = {key: np.array(value) for key, value in engine.state_tensors().items()}
    experts = "blocks.0.ffn.experts.up.w" if "blocks.0.ffn.experts.up.w" in state else ""
    for name, value in engine.model.parameters.items():
        if value.ndim > 1:
            assert state[f"row_moment/{name}"].shape == value.shape[:-1]
            assert state[f"column_moment/{name}"].shape == (*value.shape[:-2], value.shape[-1])
            experts = name if value.ndim == 3 else experts
    assert experts and state[f"row_moment/{experts}"].dtype == np.float32
    other.load_state_tensors(state)
    for threads, one in ((1, engine), (3, other)):
        _core.set_num_threads(threads)
        one.train_step(2, LR, batch_of(config, 2))
    _core.set_num_threads(0)
    again = other.state_tensors()
    assert all(np.array_equal(value, again[key]) for key, value in engine.state_tensors().items())
    engine.state_tensors(writable=True)[f"column_moment/{experts}"][-1, -1] = np.inf
    assert engine.train_step(3, LR, batch_of(config, 3)).spoilt


def test_memory_has_one_moment_of_matrices_and_their_rows_and_columns() -> None:
    factored, full = (
        Engine(config, mc.Model(config.model, seed=1))
        for config in (config_of("mixtral"), config_of("mixtral", second_moment="full"))
    )
    shapes = [value.shape for value in full.model.parameters.values() if value.ndim > 1]
    elements = sum(int(np.prod(shape)) for shape in shapes)
    added = sum(int(np.prod(shape)) // shape[-1] + int(np.prod(shape)) // shape[-2] for shape in shapes)
    less = full.memory_report()["moments"] - factored.memory_report()["moments"]
    # A parameter starts at a multiple of 64 bytes.
    assert abs(less - 4 * (elements - added)) <= 64 * 3 * len(shapes)
    assert all(
        part.name.partition("/")[0] in ("row_moment", "column_moment", "first_moment")
        for part in factored.state_parts()
        if part.name.endswith("/head")
    )


def test_muon_factors_the_second_moment_of_its_other_parameters() -> None:
    config = config_of(name="muon")
    names = Engine(config, mc.Model(config.model, seed=1)).state_tensors()
    factored = {name.partition("/")[2] for name in names if name.startswith("row_moment/")}
    # embedding and head train with AdamW, the other matrices with Muon, which has no second moment
    assert factored and all("blocks." not in name for name in factored)
