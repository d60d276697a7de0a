"""Memory of a run, planned before it is allocated: what --plan prints and what a start refuses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mudd_core.config import Config, ModelConfig, check_config, mesh_of
from mudd_core.dist import Comm
from mudd_core.engine import memory
from mudd_core.engine.batch_part import BatchPart
from mudd_core.run.build.stored_types import stored_types


def book(
    shape: ModelConfig,
    config: Config,
    model: Any = None,
    batcher: Any = None,
    *,
    only: bool = False,
    comm: Comm | None = None,
    checkpoints: Path | None = None,
) -> tuple[Any, Any, dict[str, int]]:
    """(model, engine, bytes by kind): all memory booked, next to none of it touched, the weights zeros.

    model: one to train further; it keeps its weights. only: for a plan, of any size; such a model cannot run. comm: the
    ranks that train it; all make this call. checkpoints: of the run, whose types the frozen weights keep.
    """
    from mudd_core.data.pipelines import parts_of
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model

    parts = parts_of(config.data)
    if model is None:
        model = Model(
            shape,
            initialize=False,
            booked_only=only,
            precision=config.train.precision,
            comm=comm,
            stored=stored_types(shape, config, checkpoints),
        )
    engine = Engine(config, model, batcher, parts)
    batch = config.eval.batch_size or config.train.batch_size
    evaluation = model.plan_evaluation(batch, config.train.seq_len, optional=parts).executor.arena_bytes
    return model, engine, {**engine.memory_report(), "evaluation": evaluation}


@dataclass(frozen=True)
class Place:
    """The ranks that the memory of a run is for: how many in all, and on a node."""

    world: int = 1
    on_a_node: int = 1

    def text(self, config: Config) -> str:
        """The ranks in words."""
        shared = "; a node has one copy of the weights, of which a rank's share is counted"
        mesh = mesh_of(config, self.world)
        return f"{self.world} as {mesh}, {self.on_a_node} on a node" + (shared if self.on_a_node > 1 else "")

    def config_of_rank(self, config: Config) -> Config:
        """A config of one process whose graphs are those of the first rank, which has the most sequences."""
        train = config.train
        part = BatchPart.of(train.batch_size, train.shard_count(), 0, self.world)
        validated = config.eval.batch_size or train.batch_size
        return dataclasses.replace(
            config,
            train=dataclasses.replace(train, batch_size=part.samples, logical_shards=part.shards),
            eval=dataclasses.replace(config.eval, batch_size=validated),
        )

    def shared(self, report: dict[str, int]) -> dict[str, int]:
        """A rank's share of what one process would need: a node has one copy of the weights."""
        cut = {"weights": self.on_a_node, "packed": self.on_a_node, "moments": self.world}
        return {kind: -(-count // cut.get(kind, 1)) for kind, count in report.items()}


ALONE = Place()


def planned_bytes(
    shape: ModelConfig, config: Config, checkpoints: Path | None = None, place: Place = ALONE
) -> dict[str, int]:
    """Return the memory by kind that a rank of a run will take on top of the program; takes none of it."""
    if place.world == 1:
        return book(shape, config, only=True, checkpoints=checkpoints)[2]
    mesh_of(config, place.world)  # a changed config may not fit the ranks
    _, engine, report = book(shape, place.config_of_rank(config), only=True, checkpoints=checkpoints)
    if place.world > place.on_a_node:  # whole tables go between nodes, not the rows that were read
        report["gradients"] = engine.gradient_bytes(gradient_rows=False)
    return place.shared(report)


def memory_advice(
    shape: ModelConfig,
    config: Config,
    report: dict[str, int],
    have: int,
    checkpoints: Path | None = None,
    place: Place = ALONE,
) -> str:
    """Return what to change so that a run, whose ranks need what planned_bytes reports, fits into `have` bytes."""
    _, trained = _counted(
        shape, config, checkpoints
    )  # the gradients are at least as large as the weights that train
    settled = (report["weights"] + 4 * trained + report["moments"]) * place.on_a_node
    whole = config.optim.moment_dtype == "fp32"  # half of the first of two moments
    rounding = report["moments"] // 4 * place.on_a_node if whole else 0
    return _advice(shape, config, (settled, rounding), have, checkpoints, place)


def _advice(
    shape: ModelConfig,
    config: Config,
    settled: tuple[int, int],
    have: int,
    checkpoints: Path | None,
    place: Place,
) -> str:
    """As memory_advice; settled: bytes of a node that no batch changes, and those that a bf16 moment saves."""
    from mudd_core.run.build.memory_advice import advice

    @cache
    def least_bytes(own: ModelConfig) -> int:  # no change of the batch changes it
        return _least_bytes(own, config, checkpoints, place)

    def needed(changed: Config) -> int:
        check_config(changed)
        own = dataclasses.replace(changed.model, vocab_size=shape.vocab_size, max_seq_len=shape.max_seq_len)
        least = least_bytes(own)
        return (
            least
            if least > have
            else place.on_a_node * sum(planned_bytes(own, changed, checkpoints, place).values())
        )

    return advice(config, needed, have, *settled)


def _counted(shape: ModelConfig, config: Config, checkpoints: Path | None) -> tuple[int, int]:
    """Bytes of the weights, and number of those that train."""
    from mudd_core.engine.model import Model
    from mudd_core.engine.trainable import choose_trained

    model = Model(shape, booked_only=True, stored=stored_types(shape, config, checkpoints))
    choose_trained(model, config.train.trainable)
    return model.store.plane_bytes, model.store.trained_elements


def _least_bytes(shape: ModelConfig, config: Config, checkpoints: Path | None, place: Place) -> int:
    """Bytes of a node's weights, gradients and one moment alone.

    Planning the updates of a model far too large takes seconds; counting its weights does not.
    """
    weights, trained = _counted(shape, config, checkpoints)
    return weights + (4 * place.on_a_node + 2) * trained if place.world > 1 else weights + 6 * trained


def check_memory(
    shape: ModelConfig,
    config: Config,
    what: str = "training",
    checkpoints: Path | None = None,
    place: Place = ALONE,
) -> dict[str, int]:
    """Return planned_bytes; UserError, with advice, if the ranks of a node do not fit into its memory."""
    least = _least_bytes(shape, config, checkpoints, place)
    part = f"{what} (weights, gradients and one moment alone)"
    memory.require(least, part, lambda have: _advice(shape, config, (least, 0), have, checkpoints, place))
    report = planned_bytes(shape, config, checkpoints, place)
    memory.require(
        place.on_a_node * sum(report.values()),
        what,
        lambda have: memory_advice(shape, config, report, have, checkpoints, place),
    )
    return report
