"""The real engine: what one world saves another goes on from, with the bits of a run that was never broken off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from checkpoint_cases import RUN, STATE
from mudd_core import checkpoint
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, on_ranks
from small_models import CASES


def config_of(family: str, **optim: Any) -> Config:
    return Config(
        name=family,
        model=dataclasses.replace(CASES[family][0], vocab_size=4099, max_seq_len=16),
        train=TrainConfig(batch_size=8, seq_len=16, seed=5, logical_shards=8, threads=1),
        optim=OptimConfig(lr=3e-3, **optim),
    )


def steps(config: Config, folder: Path, world: int, begin: int, end: int) -> str:
    """Train steps [begin, end) in this world, from the checkpoint of `begin` to that of `end`; the hash of all."""

    def work(comm: Comm) -> str:
        model = mc.Model(config.model, seed=config.train.seed, comm=comm if world > 1 else None)
        engine = Engine(config, model)
        if begin:
            parts = engine.state_parts(writable=True)
            found = checkpoint.load_newest(folder, into=parts, comm=comm)
            assert found is not None and found.step == begin
            engine.load_state(parts)
        for step in range(begin, end):
            engine.train_step(step, config.optim.lr, batch_of(config, step))
        assert engine.updates == end
        checkpoint.save(folder, end, engine.state_parts(), STATE, comm=comm, **RUN)
        return checkpoint.final_hash(engine.state_parts(), comm)

    first, *others = on_ranks(work, world)
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize(
    ("family", "optim"),
    [
        ("llama_gqa", {}),
        ("llama_gqa", {"name": "muon"}),
        ("llama_gqa", {"name": "lion", "moment_dtype": "bf16"}),
        ("mixtral", {}),
        ("mudd", {}),
    ],
)
def test_a_run_through_many_worlds_ends_with_the_bits_of_one(
    memory_path: Path, family: str, optim: dict[str, Any]
) -> None:
    config = config_of(family, **optim)
    wanted = steps(config, memory_path / "one", 1, 0, 5)
    found = ""
    for begin, world in enumerate((1, 2, 4, 2, 1)):
        found = steps(config, memory_path / "many", world, begin, begin + 1)
    assert found == wanted
    cut = read_manifest(memory_path / "many" / "step-3")
    assert cut.world == 4 and any(len(tensor.slices) > 1 for tensor in cut.tensors.values())
    assert all(len(tensor.slices) == 1 for name, tensor in cut.tensors.items() if "/" not in name)
