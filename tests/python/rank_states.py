"""States sharded as in a run: weights whole on a host, moments sharded over fsdp, counts on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mudd_core as mc
from checkpoint_cases import RUN, STATE
from mudd_core import checkpoint
from mudd_core.checkpoint import StatePart
from mudd_core.config import Config
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from mudd_core.run.build.planned_model import cut_of
from rank_runs import batch_of, experts_of, on_ranks

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]


@dataclass(frozen=True)
class World:
    """data x fsdp ranks, node_size of them on a host."""

    data: int
    fsdp: int
    node_size: int
    whole_weights: bool = True  # otherwise they are sharded like the moments

    @property
    def ranks(self) -> int:
        return self.data * self.fsdp

    def parts(self, tensors: Tensors, comm: Comm) -> list[StatePart]:
        """Return this rank's parts of these tensors; none of a tensor with fewer rows than owners."""
        slot = comm.rank % self.fsdp
        parts = [
            StatePart(name, array.shape, 0, array, "/" not in name)
            if "count" in name or ("/" not in name and self.whole_weights)
            else cut(name, array, slot, self.fsdp)
            for name, array in tensors.items()
        ]
        return [part for part in parts if part.array.size or not part.elements]


WORLDS = {
    "1": World(1, 1, 1),
    "2": World(1, 2, 2),
    "4": World(1, 4, 2),
    "4 of a node": World(1, 4, 4),
    "2x2": World(2, 2, 4),
    "4 in parts": World(1, 4, 1, whole_weights=False),
}


def cut(name: str, array: Array, slot: int, slots: int) -> StatePart:
    """Return the rows of one of `slots` owners; the borders are as uneven as the sizes require."""
    row = array.shape[-1] if array.ndim > 1 else 1
    rows = array.size // max(1, row)
    begin, end = rows * slot // slots, rows * (slot + 1) // slots
    shape = array.shape if end - begin == rows else (end - begin, row) if array.ndim > 1 else (end - begin,)
    return StatePart(
        name, array.shape, begin * row, array.reshape(-1)[begin * row : end * row].reshape(shape)
    )


def random_tensors(seed: int = 1, scale: int = 1) -> Tensors:
    """Return tensors of every kind of shape. scale: factor on the rows of the matrices."""
    rng = np.random.default_rng(seed)
    shapes = {
        "blocks.0.scale": (),
        "blocks.0.bias": (3,),
        "embed": (33 * scale, 7),
        "final_norm.gain": (11,),
        "blocks.0.experts.up": (3, 5 * scale, 6),
        "blocks.0.none": (0, 4),
    }
    tensors = {}
    for name, shape in shapes.items():
        tensors[name] = np.asarray(rng.normal(size=shape), np.float32)
        for moment, dtype in (("first_moment", np.uint16), ("second_moment", np.float32)):
            tensors[f"{moment}/{name}"] = np.asarray(rng.integers(0, 60000, size=shape), dtype)
    tensors["updates/count"] = np.array([seed], np.int64)
    return tensors


def save(directory: Path, step: int, world: World, tensors: Tensors | None = None, **changes: Any) -> Path:
    """Save with all ranks of a world, as threads."""
    tensors = random_tensors(step) if tensors is None else tensors

    def work(comm: Comm) -> Path:
        parts = world.parts(tensors, comm)
        return checkpoint.save(directory, step, parts, STATE, comm=comm, **{**RUN, **changes})

    return on_ranks(work, world.ranks, world.node_size)[0]


def load(directory: Path, world: World, like: Tensors, **changes: Any) -> list[Tensors]:
    """Load its parts into zeros on each rank of a world; return the joined tensors of each host."""
    nodes: list[Tensors] = [
        {name: np.zeros_like(array) for name, array in like.items()}
        for _ in range(world.ranks // world.node_size)
    ]

    def work(comm: Comm) -> None:
        parts = world.parts(nodes[comm.node], comm)
        found = checkpoint.load_newest(directory, into=parts, comm=comm, **changes)
        assert found is not None and found.tensors == {} and found.state == STATE

    on_ranks(work, world.ranks, world.node_size)
    return nodes


def held_by(node: int, world: World, tensors: Tensors) -> Tensors:
    """Return the values that the ranks of one host have together, zeros elsewhere."""
    held = {name: np.zeros_like(array) for name, array in tensors.items()}
    for rank in range(node * world.node_size, (node + 1) * world.node_size):
        for name, array in tensors.items():
            if "count" in name or ("/" not in name and world.whole_weights):
                held[name][...] = array
                continue
            part = cut(name, array, rank % world.fsdp, world.fsdp)
            held[name].reshape(-1)[part.begin : part.end] = part.array.reshape(-1)
    return held


def train_between(comm: Comm, config: Config, folder: Path, begin: int, end: int) -> str:
    """Train steps [begin, end) as one rank, from the checkpoint of `begin` to `end`'s; return the hash of all state."""
    model = mc.Model(
        config.model,
        seed=config.train.seed,
        comm=comm if comm.world > 1 else None,
        experts=experts_of(comm, config),
        cut=cut_of(config.model, config, comm),
    )
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
