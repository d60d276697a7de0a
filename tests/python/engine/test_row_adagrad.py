"""optim.name=row_adagrad: the formula in float64, equal bits everywhere, state and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.engine.engine import Engine
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import Place
from rank_runs import batch_of, config_in_shards, train
from small_models import CASES, DEALT

LR, EPS = 1e-3, 1e-8
MANY = 4099  # rows of a table, of which a step reads at most 128


def config_of(family: str = "llama_gqa", vocabulary: int = MANY, mesh: Any = None, **optim: Any) -> Config:
    sizes = {**(DEALT if mesh and "expert" in mesh else {}), "vocab_size": vocabulary, "max_seq_len": 16}
    model = dataclasses.replace(CASES[family][0], **sizes)
    fields = {"name": "row_adagrad", "lr": LR, "clip": 0.0, "decay": "all", "weight_decay": 0.1, **optim}
    config = config_in_shards(model, optim=OptimConfig(**fields))
    return dataclasses.replace(config, mesh=MeshConfig(**(mesh or {})))


def engine_of(config: Config) -> Engine:
    return Engine(config, mc.Model(config.model, seed=1))


def tables_of(engine: Engine) -> list[str]:
    store = engine.model.store
    return [name for name in store.names() if store.describe(name)["role"] == "embedding"]


def copied(engine: Engine) -> dict[str, Any]:
    return {key: np.array(value) for key, value in engine.state_tensors().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return set(one) == set(other) and all(np.array_equal(value, other[key]) for key, value in one.items())


class Formula:
    """Adagrad with one sum for each row of a table and a decay for all missed updates, in float64."""

    def __init__(self, weights: Any, decay: float) -> None:
        self.w, self.decay = weights.astype(np.float64), decay
        self.sums, self.last = np.zeros(len(weights)), np.zeros(len(weights))

    def step(self, n: int, gradient: Any) -> Any:
        """Run update n; return the rows that it changes."""
        g = gradient.astype(np.float64)
        rows = np.flatnonzero(g.any(axis=1))
        self.sums[rows] += (g[rows] ** 2).mean(axis=1)
        kept = (1 - self.decay) ** (n - self.last[rows])
        step = LR / (np.sqrt(self.sums[rows]) + EPS)
        self.w[rows] = kept[:, None] * self.w[rows] - step[:, None] * g[rows]
        self.last[rows] = n
        return rows


@pytest.mark.parametrize(
    ("family", "vocabulary", "optim", "decay"),
    [
        ("llama_gqa", MANY, {}, 0.1 * LR),
        ("llama_gqa", 61, {"decay_mode": "independent"}, 0.1),
        ("llama_tied", 700, {}, 0.1 * LR),
        ("gpt2", 700, {"decay": "matrices"}, 0.0),
        ("llama_gqa", 700, {"name": "lion", "groups": "row_adagrad: embed, weight_decay=0.2"}, 0.2 * LR),
    ],
)
def test_updates_are_the_formula_in_float64(
    family: str, vocabulary: int, optim: dict[str, Any], decay: float
) -> None:
    config = config_of(family, vocabulary, **optim)
    engine = engine_of(config)
    tables = {name: Formula(engine.model.parameters[name], decay) for name in tables_of(engine)}
    assert tables
    for n in range(1, 11):
        batch, before = batch_of(config, n), copied(engine)
        gradients = engine.model.loss_and_gradients(batch, shards=8)[1]
        assert engine.train_step(n - 1, LR, batch).finite
        after = copied(engine)
        for name, want in tables.items():
            rows = want.step(n, gradients[name])
            others = np.setdiff1d(np.arange(len(want.w)), rows)
            assert np.array_equal(after[name][others], before[name][others])
            assert np.array_equal(after[f"row_update/{name}"], want.last)
            # A sum is stored in fp32, and each of the updates rounds it once.
            np.testing.assert_allclose(after[f"row_moment/{name}"], want.sums, rtol=1e-7 * n, atol=1e-30)
            # Each update rounds a weight, its factor and the step, of about 1e-3.
            np.testing.assert_allclose(after[name], want.w, rtol=3e-7 * n, atol=1e-6 * LR * n)
    planes = {key.partition("/")[0] for key in after if key.partition("/")[2] in tables}
    assert planes == {"row_moment", "row_update"}
    assert {"first_moment/final_norm.gain"} <= set(after)
    if family == "llama_gqa" and vocabulary > 128:  # a head that is not tied to the table
        assert (after["row_update/embed"] == 0).any() and (after["row_update/embed"] == 3).any()


WORLDS = [
    (config_of(clip=1.0), ((2, None), (4, None), (2, 1), (4, 2))),
    (config_of("llama_tied", clip=1.0, moment_dtype="bf16"), ((2, None), (2, 1))),
    (config_of("gpt2", 61), ((2, None), (4, 2))),
    (config_of(name="muon", groups="row_adagrad: embed; lion: head"), ((4, None),)),
    (config_of(second_moment="factored"), ((2, None), (4, 2))),
    (config_of("mixtral", mesh={"expert": 2}), ((2, None), (4, 2))),
    (config_of(mesh={"zero": 3}), ((2, None), (2, 1), (4, 2))),
    (config_of("llama_tied", mesh={"zero": 3}), ((2, None),)),
]


@pytest.mark.parametrize(("config", "worlds"), WORLDS)
def test_worlds_and_micro_batches_have_the_bits_of_one(config: Config, worlds: Any) -> None:
    alone = dataclasses.replace(config, mesh=MeshConfig())
    want = train(alone, 1)
    assert {"row_moment/embed", "row_update/embed"} <= set(want.state)
    for world, node_size in worlds:
        assert train(config, world, node_size=node_size) == want, (world, node_size)
    for micro in (1, 4):
        in_runs = dataclasses.replace(config.train, micro_batch_size=micro)
        assert train(dataclasses.replace(alone, train=in_runs), 1) == want
    in_runs = dataclasses.replace(config.train, micro_batch_size=2)
    assert train(dataclasses.replace(config, train=in_runs), 2) == want


@pytest.mark.parametrize("family", ["llama_gqa", "llama_tied"])
def test_the_state_is_loaded_again_with_any_threads(family: str) -> None:
    config = config_of(family)
    engine, other = engine_of(config), engine_of(config)
    for step in range(3):
        engine.train_step(step, LR, batch_of(config, step))
    other.load_state_tensors(copied(engine))
    for step in (3, 4):
        for threads, one in ((1, engine), (3, other)):
            _core.set_num_threads(threads)
            one.train_step(step, LR, batch_of(config, step))
    _core.set_num_threads(0)
    assert same(copied(engine), copied(other))
    missing = copied(engine)
    del missing["row_update/embed"]
    with pytest.raises(UserError, match="'row_update/embed' is missing"):
        other.load_state_tensors(missing)


def test_infinity_in_a_moment_spoils_the_step_of_its_row() -> None:
    config = config_of()
    engine, batch = engine_of(config), batch_of(config, 0)
    read = np.unique(batch["inputs"])
    moments = engine.state_tensors(writable=True)["row_moment/embed"]
    moments[np.setdiff1d(np.arange(MANY), read)[0]] = np.inf  # this row is not updated
    assert not engine.train_step(0, LR, batch).spoilt
    moments[read[-1]] = np.inf
    assert engine.train_step(1, LR, batch).spoilt


@pytest.mark.parametrize("family", ["llama_gqa", "gpt2"])
def test_a_table_has_eight_bytes_for_each_row(family: str) -> None:
    config = config_of(family)
    engine, adamw = engine_of(config), engine_of(config_of(family, name="adamw"))
    padded = lambda elements: -(-elements // 16) * 16  # noqa: E731  parameters start at multiples of 16 elements
    weights = [engine.model.parameters[name] for name in tables_of(engine)]
    saved = 8 * sum(padded(table.size) - padded(len(table)) for table in weights)
    found, full = engine.memory_report(), adamw.memory_report()
    assert full["moments"] - found["moments"] == saved
    assert {**full, "moments": found["moments"]} == found
    assert MemoryPlan.of(config.model, config, Place(1, 1)).bytes()["moments"] == found["moments"]


def test_frozen_tables_have_no_moments() -> None:
    config = config_of("gpt2", 61)
    frozen = dataclasses.replace(config, train=dataclasses.replace(config.train, trainable="!embed"))
    engine = engine_of(frozen)
    before = np.array(engine.model.parameters["embed"])
    engine.train_step(0, LR, batch_of(config, 0))
    state = engine.state_tensors()
    assert {key for key in state if key.startswith("row_update/")} == {"row_update/pos_embed"}
    assert np.array_equal(before, engine.model.parameters["embed"])
    alone = dataclasses.replace(config, train=dataclasses.replace(config.train, trainable="embed"))
    engine = engine_of(alone)
    assert engine.train_step(0, LR, batch_of(config, 0)).finite
    assert {key for key in engine.state_tensors() if "moment/" in key} == {"row_moment/embed"}
    assert engine.memory_report()["moments"] == 8 * 64


def test_the_fast_check_of_a_plan_counts_no_moments_or_gradients_of_tables() -> None:
    config = config_of(vocabulary=10**6)
    plan = MemoryPlan.of(config.model, config, Place(1, 1))
    weights = plan.bytes()["weights"]
    adamw = config_of(vocabulary=10**6, name="adamw")
    # The table has half of the weights. A weight has 4 bytes, with AdamW at least 10. The blocks have less than 1%.
    assert plan.least_bytes() == pytest.approx((10 + 4) / 8 * weights, rel=0.01)
    assert plan.least_bytes() < sum(plan.bytes().values())
    full = MemoryPlan.of(adamw.model, adamw, Place(1, 1))
    # The blocks, as above.
    assert full.least_bytes() == pytest.approx((10 + 10) / 8 * weights, rel=0.01)
