"""Steps of ranks that shard weights or experts are recorded with unchanged bits; a wrong sum over ranks is named."""

from __future__ import annotations

import dataclasses

import pytest

import mudd_core as mc
from mudd_core.config import Config, MeshConfig
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from mudd_core.fingerprint import first_difference
from mudd_core.run.build.planned_model import cut_of
from planted_flips import Planted, record
from rank_runs import batch_of, config_in_shards, experts_of, on_ranks
from small_models import CASES, DEALT

# (mesh, ranks, ranks per host)
MESHES = [
    (MeshConfig(), 2, 1),
    (MeshConfig(zero=3), 2, 1),
    (MeshConfig(zero=3), 2, 2),
    (MeshConfig(expert=2), 2, 2),
    (MeshConfig(expert=2, zero=3), 2, 1),
]


def engine_of(mesh: MeshConfig, comm: Comm) -> Engine:
    model = dataclasses.replace(CASES["mixtral"][0], **DEALT)
    config: Config = dataclasses.replace(config_in_shards(model, micro_batch_size=2), mesh=mesh)
    experts, cut = experts_of(comm, config), cut_of(config.model, config, comm)
    return Engine(config, mc.Model(config.model, seed=5, comm=comm, experts=experts, cut=cut))


@pytest.mark.parametrize(("mesh", "world", "node_size"), MESHES)
def test_a_recorded_step_of_ranks(mesh: MeshConfig, world: int, node_size: int) -> None:
    def work(comm: Comm) -> list[str]:
        plain, engine = engine_of(mesh, comm), engine_of(mesh, comm)
        batch = batch_of(plain.config, 0)
        before = record(engine)
        assert first_difference(before, record(engine)) is None
        sums = [line for line in before.lines if line.op == "sum over ranks"]
        assert {line.key.rank for line in sums} == set(range(world))
        for line in (sums[0], sums[-1]):
            found = first_difference(before, record(engine, wrap=Planted(line.key, 1, comm.rank)))
            assert found is not None and found.a.key == line.key
        plain.train_step(0, 1e-3, batch)
        engine.train_step(0, 1e-3, batch)
        pairs = zip(plain.state_parts(), engine.state_parts(), strict=True)
        return [a.name for a, b in pairs if a.array.tobytes() != b.array.tobytes()]

    assert on_ranks(work, world, node_size) == [[]] * world
