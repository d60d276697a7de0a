"""The user's own optimizers: bits over worlds, the update, whole matrices with one owner, and invalid optimizers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.config.own_optimizers import named_optimizer
from mudd_core.engine.engine import Engine
from own_cases import ADAMW, MOMENTUM
from rank_runs import batch_of, config_in_shards, train

MODEL = mc.TransformerPPConfig(vocab_size=61, max_seq_len=16, d_model=32, n_layer=2, n_head=2, d_ff=48)


def config_of(name: str, **optim: Any) -> Config:
    named_optimizer(name) if ":" in name else None
    return config_in_shards(MODEL, optim=OptimConfig(name=name, lr=3e-3, **optim))


@pytest.mark.parametrize("moment", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [ADAMW, MOMENTUM])
def test_worlds_have_the_bits_of_one(name: str, moment: str) -> None:
    config = config_of(name, moment_dtype=moment)
    want = train(config, 1)
    for world in (2, 4):
        assert train(config, world) == want, world


def test_groups_of_own_optimizers_have_one_set_of_bits_over_worlds() -> None:
    named_optimizer(ADAMW)
    groups = f"{MOMENTUM}: blocks.*.ffn.*.w, lr_factor=0.5; {ADAMW}: head, embed, beta1=0.5"
    config = config_of("lion", groups=groups)
    want = train(config, 1)
    for world in (2, 4):
        assert train(config, world) == want, world
    assert train(dataclasses.replace(config, mesh=MeshConfig(zero=3)), 2) == want


def test_a_group_has_the_update_of_optim_name() -> None:
    alone, grouped = (
        config_of(ADAMW, weight_decay=0.3),
        config_of("lion", groups=f"{ADAMW}: *, weight_decay=0.3"),
    )
    assert train(grouped, 1) == train(alone, 1)
    halved = train(config_of(ADAMW, groups=f"{ADAMW}: *, lr_factor=0.5"), 1)
    assert halved.losses[0] == train(config_of(ADAMW), 1).losses[0] != halved.losses[1]
    assert halved.state != train(config_of(ADAMW), 1).state


def test_adamw_in_numpy_is_the_one_of_the_core() -> None:
    for optim in ({}, {"beta1": 0.5, "weight_decay": 0.3, "eps": 1e-3}):
        own, core = (train(config_of(name, **optim), 1) for name in (ADAMW, "adamw"))
        assert own.state.keys() == core.state.keys()
        for key in own.state:
            mine, theirs = (np.frombuffer(one.state[key], np.float32) for one in (own, core))
            # NumPy rounds the update in another order, over several updates.
            assert np.allclose(mine, theirs, rtol=1e-4, atol=2e-6), key


def test_an_elementwise_one_gets_all_and_a_whole_one_gets_matrices_of_blocks() -> None:
    seen: list[tuple[int, ...]] = []

    def record(w: Any, g: Any, state: Any, lr: float) -> None:
        seen.append(w.shape)
        assert g.shape == state["m"].shape == w.shape and state["step"] == 1 and lr == 3e-3

    for whole in (False, True):
        mc.register_optimizer(record, whole=whole)
        config = config_of("record")
        model = mc.Model(MODEL, seed=1)
        before = {name: np.array(value) for name, value in model.parameters.items()}
        Engine(config, model).train_step(0, 3e-3, batch_of(config, 0), settle=True)
        sizes = sorted(value.size for value in before.values())
        if not whole:
            assert sorted(shape[0] for shape in seen) == sizes
        else:
            assert sorted(seen) == sorted(
                v.shape for n, v in before.items() if n.startswith("blocks") and v.ndim == 2
            )
        same = {name: np.array_equal(before[name], value) for name, value in model.parameters.items()}
        assert all(same[n] for n in same if n.startswith("blocks") and before[n].ndim == 2)
        assert all(same.values()) is not whole  # adamw updates the others
        seen.clear()


def test_what_an_update_keeps_is_no_alias_of_a_weight() -> None:
    kept: list[Any] = []

    def keep(w: Any, g: Any, state: Any, lr: float) -> None:
        kept.append(w)

    mc.register_optimizer(keep)
    config = config_of("keep")
    model = mc.Model(MODEL, seed=1)
    Engine(config, model).train_step(0, 3e-3, batch_of(config, 0), settle=True)
    before = {name: np.array(value) for name, value in model.parameters.items()}
    for array in kept:
        array[:] = 7
    assert all(np.array_equal(before[name], value) for name, value in model.parameters.items())


def test_what_cannot_be_an_optimizer_is_named(tmp_path: Path) -> None:
    def few(w: Any, g: Any) -> None:
        pass

    def odd(w: Any, g: Any, state: Any, lr: float, warmth: float = 1.0) -> None:
        pass

    def bare(w: Any, g: Any, state: Any, lr: float, momentum: float) -> None:
        pass

    def right(w: Any, g: Any, state: Any, lr: float) -> None:
        pass

    for function, state, said in [
        (few, ("m",), "expected update(w, g, state, lr), got few(w: 'Any', g: 'Any') -> 'None'"),
        (bare, ("m",), "momentum: 'float') -> 'None'; give momentum a default value"),
        (odd, ("m",), "keyword arguments of beta1, beta2"),
        (right, ("m", "v", "u"), "state: expected one or two names, such as ('m', 'v'), got ('m', 'v', 'u')"),
        (3, ("m",), "expected update(w, g, state, lr), got int"),
    ]:
        with pytest.raises(TypeError, match=re.escape(said)):
            mc.register_optimizer(function, state=state)  # type: ignore[type-var]
    (tmp_path / "mine.py").write_text("def mine(w, g, state, lr):\n    pass\n")
    with pytest.raises(UserError, match=r"mine\.py: mine is not registered"):
        named_optimizer(f"{tmp_path}/mine.py:mine")


def test_a_wrong_shape_names_the_optimizer_and_both_shapes() -> None:
    def short(w: Any, g: Any, state: Any, lr: float) -> Any:
        return w[:-1]

    mc.register_optimizer(short)
    config = config_of("short")
    with pytest.raises(
        ValueError,
        match=re.escape("[optim.name] short: new weights: expected float32[1952], got float32[1951]"),
    ):
        Engine(config, mc.Model(MODEL, seed=1)).train_step(0, 3e-3, batch_of(config, 0), settle=True)
