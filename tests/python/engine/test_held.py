"""A model sharded over ranks: values, hash, saves and loads equal those of the whole model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from checkpoint_cases import RUN, STATE
from mudd_core import checkpoint
from mudd_core.checkpoint import StatePart
from mudd_core.dist import Comm
from mudd_core.engine.state import EngineState
from rank_runs import on_ranks
from tiny_run_config import get_config

SHAPE = replace(get_config().model, vocab_size=257, max_seq_len=64)


def whole_hash(seed: int) -> str:
    return checkpoint.final_hash(parts_of(mc.Model(SHAPE, seed=seed)))


def parts_of(model: mc.Model, writable: bool = False) -> list[StatePart]:
    return [
        part for part in EngineState(model.store, [], None).parts(writable=writable) if "/" not in part.name
    ]


def held_by(rank: int, world: int) -> dict[str, tuple[int, int]]:
    """Return the whole rows of each parameter for a rank, in nearly equal parts; none of a small parameter for some."""
    store = mc.Model(SHAPE, booked_only=True).store
    found = {}
    for name in store.names():
        shape = store.describe(name)["shape"]
        row = shape[-1] if len(shape) > 1 else 1
        rows = int(np.prod(shape)) // row
        found[name] = (rows * rank // world * row, rows * (rank + 1) // world * row)
    return found


@pytest.mark.parametrize("world", [2, 4])
def test_parts_of_ranks_are_those_of_one_process(tmp_path: Path, world: int) -> None:
    def work(comm: Comm) -> tuple[str, str, int]:
        model = mc.Model(SHAPE, seed=5, comm=comm, held=held_by(comm.rank, world))
        made = checkpoint.final_hash(parts_of(model), comm)
        checkpoint.save(tmp_path, 1, parts_of(model), STATE, comm=comm, **RUN)
        other = mc.Model(SHAPE, seed=6, comm=comm, held=held_by(comm.rank, world))
        assert checkpoint.load_newest(tmp_path, into=parts_of(other, writable=True), comm=comm) is not None
        return made, checkpoint.final_hash(parts_of(other), comm), model.store.plane_bytes

    whole = mc.Model(SHAPE, seed=5).store.plane_bytes
    for made, loaded, size in on_ranks(work, world, node_size=1):
        assert made == loaded == whole_hash(5)
        assert size < whole / world * 1.1
    loaded = mc.Model(SHAPE, seed=7)
    assert checkpoint.load_newest(tmp_path, into=parts_of(loaded, writable=True)) is not None
    assert checkpoint.final_hash(parts_of(loaded)) == whole_hash(5)


def test_a_part_takes_its_rows_of_a_whole_array() -> None:
    model = mc.Model(SHAPE, seed=5, held={"embed": (64 * 10, 64 * 20), "final_norm.gain": (3, 9)})
    table = np.arange(257 * SHAPE.d_model, dtype=np.float32).reshape(257, -1)
    model.store.set_values("embed", table)
    begin, end = model.store.held(0, "embed")
    assert np.array_equal(model.store.view(0, "embed").ravel(), table.ravel()[begin:end])
    model.store.set_values("final_norm.gain", np.arange(SHAPE.d_model, dtype=np.float32))
    assert model.store.view(0, "final_norm.gain").tolist() == [3, 4, 5, 6, 7, 8]
    with pytest.raises(ValueError, match="expected shape"):
        model.store.set_values("embed", table[:5])
