"""The model and the engine of a run, with memory planned and reserved but hardly touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.config import Config, MeshConfig, ModelConfig
from mudd_core.config.schema import lora_of
from mudd_core.data.rows import TEACHER_PARTS
from mudd_core.dist import Comm
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.rows import teacher_file
from mudd_core.run.build.stored_types import StoredTypes, stored_in
from mudd_core.run.ranks.ranks import Ranks

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Rows
    from mudd_core.engine.cut import Cut, Spread
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model


def plan_model(
    shape: ModelConfig,
    config: Config,
    model: Model | None = None,
    batcher: Rows | None = None,
    *,
    only: bool = False,
    comm: Comm | None = None,
    stored: StoredTypes | None = None,
    place: Place = ALONE,
) -> tuple[Model, Engine, dict[str, int]]:
    """Return (model, engine, bytes by kind) with all memory reserved but hardly touched; the weights are zeros.

    model: a model to train further, which keeps its weights. only: only plan, for any size; such a model cannot run.
    comm: the communicator of the ranks that train it, which all make this call. stored: the types of the frozen
    weights; None: from the config. place: the place of rank 0, for a plan of several ranks.
    """
    from mudd_core.data.pipelines import parts_of
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model
    from mudd_core.engine.teaching import Teaching

    parts = parts_of(config.data)
    teacher = teacher_file(config)
    if model is None:
        stored = stored or stored_in(config)
        alone = (
            comm is None and place.world == 1
        )  # the ranks of a node share one unsharded copy of the weights
        model = Model(
            shape,
            initialize=False,
            booked_only=only,
            precision=config.train.precision,
            comm=comm,
            experts=expert_group(config.mesh, comm, place),
            stored=stored.of(shape, config),
            cut=cut_of(shape, config, comm, place),
            lora=lora_of(config),
            lent=stored.lent(shape, config) if alone else None,
        )
        if config.train.recompute and model.store.lent:
            model.store.pack_at_use()
    model.teaching = None
    if teacher is not None:
        model.teaching = Teaching(teacher.facts.kept, config.loss.teacher_weight)
        parts = (*parts, *TEACHER_PARTS)
    engine = Engine(config, model, batcher, parts)
    batch = config.eval.batch_size or config.train.batch_size
    evaluation = model.plan_evaluation(batch, config.train.seq_len, optional=parts).executor.likely_bytes
    return model, engine, {**engine.memory_report(), "evaluation": evaluation}


def expert_group(mesh: MeshConfig, comm: Comm | None, place: Place = ALONE) -> _core.ExpertGroup | None:
    """Return the group of ranks that share the experts; without a comm, the group of rank 0 in a plan."""
    if mesh.expert == 1:
        return None
    if comm is not None:
        return comm.expert_group(mesh.expert, mesh.expert_room)
    return _core.ExpertGroup(mesh.expert, 0, max(place.world, mesh.expert), mesh.expert_room)


def spread_of(shape: ModelConfig, config: Config, ranks: Ranks) -> Spread:
    """Return the distribution of a model that is not trained over the ranks of the mesh."""
    from mudd_core.engine.cut import Spread

    comm = ranks.comm if ranks.world > 1 else None
    experts = None if comm is None else expert_group(config.mesh, comm)
    return Spread(comm, experts, cut_of(shape, config, comm))


def cut_of(shape: ModelConfig, config: Config, comm: Comm | None, place: Place = ALONE) -> Cut | None:
    """Return the sharding of a model with mesh.zero=3; None without it, or for one rank.

    comm: the communicator of the ranks; None for a plan, which describes rank 0 at `place`, or with matrices that are
    not sharded the rank with most weights.
    """
    from mudd_core.engine.cut import Cut, whole_names
    from mudd_core.engine.model import Model
    from mudd_core.engine.optimizer_groups import optimizer_groups

    if not config.mesh.cuts_weights(place.world if comm is None else comm.world):
        return None
    experts = expert_group(config.mesh, None, place) if comm is None else None
    booked = Model(shape, booked_only=True, experts=experts, lora=lora_of(config))
    whole = whole_names(optimizer_groups(booked.store, config.optim))
    if comm is not None:
        return Cut.of(comm, whole)
    sizes = booked.store.owner_sizes(place.world, whole) if whole else [0]
    return Cut(place.world, sizes.index(max(sizes)), place.world > place.on_a_node, whole)
