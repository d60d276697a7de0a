"""train.average: the mean of the weights by its formula, in every split of a run, and its use in place of the
weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core import _core
from mudd_core.config import Config, LoraConfig, MeshConfig, OptimConfig, TrainConfig, TuneConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from rank_runs import config_in_shards, on_ranks
from rank_states import train_between
from small_models import CASES, make, make_batches, state

BATCH, LENGTH, LR, STEPS = 4, 9, 1e-2, 6
FAMILY = "llama_gqa"


def config(average: str, **train: Any) -> Config:
    sizes = {"steps": STEPS, "batch_size": BATCH, "seq_len": LENGTH, **train}
    return Config(
        name="test",
        model=CASES[FAMILY][0],
        train=TrainConfig(average=average, **sizes),
        optim=OptimConfig(lr=LR),
    )


def trained(asked: Config, steps: int = STEPS) -> tuple[Engine, list[dict[str, Any]]]:
    """Return the engine after some steps, and the weights at the start and after each step."""
    model, cfg, _ = make(FAMILY)
    engine = Engine(asked, model)
    seen = [weights(model)]
    for step, batch in enumerate(make_batches(cfg.vocab_size, steps, samples=BATCH, length=LENGTH)):
        assert engine.train_step(step, LR, batch).finite
        seen.append(weights(model))
    return engine, seen


def weights(model: Model) -> dict[str, Any]:
    return {name: np.array(value) for name, value in model.parameters.items()}


def average(engine: Engine) -> dict[str, Any]:
    parts = state(engine).items()
    return {name.partition("/")[2]: array for name, array in parts if name.startswith("average/")}


def require_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].tobytes() == value.tobytes(), name


def test_a_moving_average_starts_from_the_first_weights() -> None:
    engine, seen = trained(config("ema:0.75"))
    for name, found in average(engine).items():
        exact, rounded = np.asarray(seen[0][name], np.float64), seen[0][name]
        for after in seen[1:]:
            exact = 0.75 * exact + 0.25 * np.asarray(after[name], np.float64)
            rounded = rounded + np.float32(0.25) * (after[name] - rounded)
        assert found.tobytes() == rounded.tobytes(), name
        # each update rounds three times, at most half an epsilon of the largest weight each
        assert np.abs(found - exact).max() <= 1.5 * STEPS * 2**-24 * 2 * np.abs(exact).max(), name


def test_the_last_updates_have_a_uniform_mean() -> None:
    engine, seen = trained(config("last:3"))
    for name, found in average(engine).items():
        exact = np.mean([np.asarray(after[name], np.float64) for after in seen[-3:]], axis=0)
        assert np.abs(found - exact).max() <= 1.5 * 3 * 2**-24 * 2 * np.abs(exact).max(), name
    assert state(engine)["updates/averaged"].tolist() == [3, 3]
    early, seen = trained(config("last:3"), steps=3)
    require_same(average(early), seen[-1])  # before the mean starts it is a copy of the weights


def test_a_skipped_update_is_not_counted() -> None:
    engine, _ = trained(config("last:3"), steps=4)
    before = average(engine)
    batch = make_batches(CASES[FAMILY][0].vocab_size, 1, samples=BATCH, length=LENGTH)[0]
    assert engine.train_step(4, LR, batch, limits=(0.0, 0.0)).spike
    require_same(average(engine), before)
    assert engine.train_step(5, LR, batch).finite and state(engine)["updates/averaged"].tolist() == [3, 2]


@pytest.mark.parametrize("rule", ["ema:0.75", "last:3"])
def test_the_training_has_the_bits_of_one_without_an_average(rule: str) -> None:
    engine, _ = trained(config(rule))
    plain = state(trained(config(""))[0])
    require_same({name: value for name, value in state(engine).items() if name in plain}, plain)
    rest = state(engine).keys() - plain.keys()
    assert rest == {"updates/averaged", *(f"average/{name}" for name in engine.model.parameters)}


def test_micro_batches_and_threads_keep_the_bits() -> None:
    before, found = _core.num_threads(), []
    try:
        for threads, micro in ((1, 0), (2, 0), (2, 1)):
            _core.set_num_threads(threads)
            found.append(average(trained(config("ema:0.75", micro_batch_size=micro))[0]))
    finally:
        _core.set_num_threads(before)
    for other in found[1:]:
        require_same(other, found[0])


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("rule", ["ema:0.75", "last:3"])
@pytest.mark.parametrize("family", ["llama_gqa", "mixtral"])
def test_a_run_through_many_worlds_ends_with_the_average_of_one(
    memory_path: Path, family: str, rule: str, zero: int
) -> None:
    model = dataclasses.replace(CASES[family][0], vocab_size=4099, max_seq_len=16)
    asked = config_in_shards(model, steps=5, average=rule)
    asked = dataclasses.replace(asked, mesh=MeshConfig(zero=zero))

    def steps(name: str, world: int, begin: int, end: int, node_size: int | None = None) -> str:
        folder = memory_path / name
        return on_ranks(lambda comm: train_between(comm, asked, folder, begin, end), world, node_size)[0]

    wanted = steps("one", 1, 0, 5)  # the hash of all state, with the average
    found = ""
    for begin, (world, node_size) in enumerate(((1, 1), (2, 2), (4, 2), (2, 1), (4, 4))):
        found = steps("many", world, begin, begin + 1, node_size)
    assert found == wanted


@pytest.mark.parametrize(
    ("zero", "world", "node_size"), [(1, 1, 1), (1, 2, 2), (1, 2, 1), (3, 2, 2), (3, 2, 1)]
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_averaged_weights_replace_the_weights_in_a_block(
    zero: int, world: int, node_size: int, precision: str
) -> None:
    from mudd_core.run.build.planned_model import cut_of
    from rank_runs import batch_of

    asked = config_in_shards(CASES[FAMILY][0], steps=4, average="ema:0.5", precision=precision)
    asked = dataclasses.replace(asked, mesh=MeshConfig(zero=zero))

    def work(comm: Any) -> tuple[list[float], list[bytes]]:
        cut = cut_of(asked.model, asked, comm)
        shared = comm if world > 1 else None
        model = Model(asked.model, seed=5, precision=precision, comm=shared, cut=cut)
        engine, losses = Engine(asked, model), []
        for step in range(3):
            engine.train_step(step, LR, batch_of(asked, step), settle=False)
            batch = batch_of(asked, 9)
            losses.append(engine.evaluate(batch)[0])
            with engine.averaged():
                losses.append(engine.evaluate(batch)[0])
            losses.append(engine.evaluate(batch)[0])
        return losses, [part.array.tobytes() for part in engine.state_parts()]

    losses = on_ranks(work, world, node_size)[0][0]
    # One process without blocks, with a second model that has the averaged weights.
    alone = dataclasses.replace(asked, mesh=MeshConfig())
    model = Model(alone.model, seed=5, precision=precision)
    engine, wanted = Engine(alone, model), []
    for step in range(3):
        engine.train_step(step, LR, batch_of(alone, step))
        own = engine.evaluate(batch_of(alone, 9))[0]
        other = Model(alone.model, initialize=False, precision=precision)
        for name, value in average(engine).items():
            other.set_parameter(name, value)
        wanted += [own, other.evaluate(batch_of(alone, 9))[0], own]
    assert losses == wanted and wanted[0] != wanted[1]


def test_frozen_weights_have_no_average() -> None:
    engine, seen = trained(config("ema:0.75", trainable="blocks.0.*"))
    assert average(engine).keys() == {name for name in seen[0] if name.startswith("blocks.0.")}
    with engine.averaged():
        inside = weights(engine.model)
    for name, first in seen[0].items():
        assert name.startswith("blocks.0.") or inside[name].tobytes() == first.tobytes(), name


def test_only_adapters_have_an_average() -> None:
    asked = dataclasses.replace(
        config("ema:0.75"), tune=TuneConfig(method="lora"), lora=LoraConfig(rank=2, alpha=4.0)
    )
    engine = Engine(asked, Model(asked.model, lora=asked.lora))
    batch = make_batches(CASES[FAMILY][0].vocab_size, 1, samples=BATCH, length=LENGTH)[0]
    engine.train_step(0, LR, batch)
    names = average(engine).keys()
    assert names and all(name.endswith((".lora_a", ".lora_b")) for name in names)


def test_the_plan_counts_an_average() -> None:
    plain, kept = (trained(config(rule), steps=1)[0].memory_report() for rule in ("", "ema:0.9"))
    assert kept["moments"] * 2 == plain["moments"] * 3 and kept["weights"] == plain["weights"]


def test_a_step_without_an_average_has_none() -> None:
    engine, _ = trained(config(""), steps=1)
    with (
        pytest.raises(RuntimeError, match=r"averaged: expected a config with train\.average"),
        engine.averaged(),
    ):
        pass
