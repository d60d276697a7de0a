"""Ranks of one mesh load a checkpoint of another mesh: the bits are equal, and each rank reads little beyond its parts.

./run soak mpi tests all 30 pairs.
"""

from __future__ import annotations

import itertools
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import checkpoint
from mudd_core.checkpoint import StatePart
from mudd_core.config import Config, MeshConfig, MixtralConfig, OptimConfig, TrainConfig
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from mudd_core.run.build.planned_model import cut_of, expert_group
from rank_runs import batch_of, on_ranks
from rank_states import RUN, STATE

SEED, PAIRS = 12, int(os.environ.get("MUDD_MESH_PAIRS", "12"))
MIB = 1 << 20
# The number of ranks, ranks per node, and the mesh fields.
MESHES = {
    "1": (1, 1, MeshConfig()),
    "2": (2, 1, MeshConfig()),
    "4": (4, 2, MeshConfig()),
    "zero 3 of 2": (2, 1, MeshConfig(zero=3)),
    "zero 3 of 4": (4, 1, MeshConfig(zero=3)),
    "expert 2": (2, 1, MeshConfig(expert=2)),
}
MODEL = MixtralConfig(
    vocab_size=1024, max_seq_len=16, d_model=128, n_layer=3, n_head=4, d_ff=128, n_expert=4, top_k=2
)


def engine_of(mesh: str, comm: Comm) -> Engine:
    """Return a new engine of one rank of a mesh."""
    asked = MESHES[mesh][2]
    train = TrainConfig(batch_size=4, seq_len=16, seed=3, logical_shards=4, threads=1)
    config = Config(model=MODEL, mesh=asked, train=train, optim=OptimConfig(lr=1e-3))
    several = comm if comm.world > 1 else None
    model = mc.Model(
        MODEL,
        seed=3,
        comm=several,
        experts=None if several is None else expert_group(asked, several),
        cut=cut_of(MODEL, config, several),
    )
    return Engine(config, model)


def saved(mesh: str, folder: Path) -> None:
    """Save a checkpoint after one update by the ranks of a mesh."""

    def work(comm: Comm) -> None:
        engine = engine_of(mesh, comm)
        engine.train_step(0, 1e-3, batch_of(engine.config, 0))
        checkpoint.save(folder, 1, engine.state_parts(), STATE, comm=comm, **RUN)

    on_ranks(work, *MESHES[mesh][:2])


def loaded(mesh: str, folder: Path) -> tuple[list[StatePart], int]:
    """Load the checkpoint by the ranks of a mesh. Return the parts of all ranks and the peak of other memory."""
    engines: dict[int, Engine] = {}
    most: list[int] = []

    def work(comm: Comm) -> None:
        engines[comm.rank] = engine_of(mesh, comm)
        comm.barrier()
        if comm.rank == 0:
            tracemalloc.start()
        comm.barrier()
        parts = engines[comm.rank].state_parts(writable=True)
        assert checkpoint.load_newest(folder, into=parts, comm=comm) is not None
        engines[comm.rank].load_state(parts)
        comm.barrier()
        if comm.rank == 0:
            most.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    on_ranks(work, *MESHES[mesh][:2])
    return [part for engine in engines.values() for part in engine.state_parts()], most[0]


def pairs() -> list[tuple[str, str]]:
    return sorted(random.Random(SEED).sample(list(itertools.permutations(MESHES, 2)), PAIRS))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the checkpoint folder of each mesh."""
    made = {}
    for mesh in MESHES:
        made[mesh] = tmp_path_factory.mktemp("mesh")
        saved(mesh, made[mesh])
    return made


@pytest.mark.parametrize(("before", "after"), pairs())
def test_a_mesh_loads_what_another_saved(folders: dict[str, Path], before: str, after: str) -> None:
    wanted = checkpoint.load_step(folders["1"], 1).tensors
    parts, extra = loaded(after, folders[before])
    largest = max(part.array.nbytes for part in parts)
    assert extra < largest + 4 * MIB < sum(array.nbytes for array in wanted.values()) / 2
    covered = dict.fromkeys(wanted, 0)
    for part in {(part.name, part.begin): part for part in parts}.values():
        whole = wanted[part.name].reshape(-1)[part.begin : part.end]
        assert np.array_equal(whole, part.array.reshape(-1)), part.name
        covered[part.name] += part.array.size
    assert all(covered[name] >= array.size for name, array in wanted.items())
