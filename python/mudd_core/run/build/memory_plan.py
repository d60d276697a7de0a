"""The memory of a run, planned before allocation, for --plan and for the check at a start."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text
from mudd_core.checkpoint.write_plan import BALANCE
from mudd_core.config import Config, ModelConfig, check_config, mesh_of
from mudd_core.config.mesh import MOST_RANKS
from mudd_core.config.schema import lora_of
from mudd_core.engine import memory
from mudd_core.engine.optimizer_groups import optimizer_groups
from mudd_core.run.build.disk_space import checkpoint_bytes
from mudd_core.run.build.mesh_search import Choice, meshes
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.planned_model import expert_group, plan_model
from mudd_core.run.build.stored_types import StoredTypes, stored_in
from mudd_core.run.store.checkpoints import Checkpoints

EXPERT_AXES = 3  # number of axes of a tensor with a layer's experts
BUCKET = 4 * memory.MIB  # a bucket of gradients is summed once it has this many bytes (node_gradients.h)


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of a model that the ranks of `place` train. stored: the types of its frozen weights."""

    shape: ModelConfig
    config: Config
    place: Place
    stored: StoredTypes

    @classmethod
    def of(
        cls, shape: ModelConfig, config: Config, place: Place = ALONE, checkpoints: Checkpoints | None = None
    ) -> MemoryPlan:
        """Return the plan of a run. Its checkpoints, if it has any, determine the types of frozen weights."""
        return cls(shape, config, place, stored_in(config, checkpoints))

    def bytes(self) -> dict[str, int]:
        """Return the bytes by kind that a rank will use in addition to the program. Nothing is allocated."""
        config, place = self.config, self.place
        if place.world == 1:
            return self.with_save_buffer(plan_model(self.shape, config, only=True, stored=self.stored)[2])
        mesh_of(config, place.world)  # raises UserError if a changed config does not fit the ranks
        own = place.config_of_rank(config)
        _, engine, report = plan_model(self.shape, own, only=True, stored=self.stored, place=place)
        if config.mesh.zero < 3 and place.world > place.on_a_node:
            # Nodes exchange the gradients of whole tables, not only of the rows that were read.
            report["gradients"] = engine.gradient_bytes(gradient_rows=False)
        if place.on_a_node > 1 and (fewest := place.fewest_samples(config)) < own.train.batch_size:
            report["packed"] = engine.packed_bytes(fewest)
        own_bytes = place.shared(report, config.mesh.zero == 3, engine.expert_report(), config.mesh.expert)
        if (
            config.optim.second_moment == "factored"
            and config.mesh.zero < 3
            and place.world > place.on_a_node
        ):
            # A node may have the largest matrix alone, because its columns are summed by one rank.
            whole = config.optim.moment_bytes * self._counted.largest
            own_bytes["moments"] += math.ceil(whole / place.on_a_node)
        if exchange := self._exchange_bytes(own_bytes):
            own_bytes["exchange"] = exchange
        return self.with_save_buffer(own_bytes)

    def with_save_buffer(self, report: dict[str, int]) -> dict[str, int]:
        """Return the bytes of a rank with the copies of an asynchronous save, if the run makes such saves."""
        train = self.config.train
        if not (train.save and train.save_async and train.save_buffer):
            return report
        share = (
            1.0 if self.place.world == 1 else BALANCE / self.place.world
        )  # of the bytes, that a rank writes
        most = math.ceil(share * self.checkpoint_bytes(report))
        return {**report, "saves": min(train.save_buffer, most)}

    def checkpoint_bytes(self, report: Mapping[str, int], place: Place | None = None) -> int:
        """Return the bytes of a checkpoint; with adapters, only their bytes.

        report: the result of `bytes` at `place`.
        """
        place = place or self.place
        if (lora := lora_of(self.config)) is None:
            return checkpoint_bytes(report, place)
        copies = 2 if lora.init == "pissa" else 1  # the initial adapters are stored too
        return 4 * self._counted.trained * copies + report["moments"] * place.world

    def require(self, what: str = "training") -> dict[str, int]:
        """Return the bytes by kind; raise UserError with advice if the ranks of a node do not fit into its memory."""
        least = self.least_bytes()
        part = f"{what} (weights, gradients and one moment alone)"
        memory.require(least, part, lambda have: self._settings_for(have, least))
        report = self.bytes()
        memory.require(
            self.place.on_a_node * sum(report.values()), what, lambda have: self.advice(report, have)
        )
        memory.require_mappable(self.place.mapped(report), what, lambda have: self.advice(report, have))
        return report

    def advice(self, report: Mapping[str, int], have: int) -> str:
        """Return advice: the changes with which a run whose ranks need `report` fits into `have` bytes."""
        ranks = self.place.on_a_node
        settled = (report["weights"] + report["moments"]) * ranks + self._least_gradients(self._counted)
        return self._settings_for(have, settled, report["moments"] * ranks)

    def _settings_for(self, have: int, settled: int, moments: int = 0) -> str:
        """Return advice.

        settled: the bytes of a node that do not depend on the batch. moments: the part of them that are moments.
        """
        from mudd_core.run.build.memory_advice import advice

        shape, ranks = self.shape, self.place.on_a_node

        @cache
        def least_of(own: ModelConfig) -> int:  # the least memory does not depend on the batch
            return replace(self, shape=own).least_bytes()

        def needed(changed: Config) -> int:
            check_config(changed)
            own = dataclasses.replace(
                changed.model, vocab_size=shape.vocab_size, max_seq_len=shape.max_seq_len
            )
            least = least_of(own)
            if least > have:
                return least
            return ranks * sum(replace(self, shape=own, config=changed).bytes().values())

        for place in self.place.smaller():
            if (mesh := next(replace(self, place=place).choices(have), None)) is not None:
                fewer = f"start --ranks={place.world} and " if place.world < self.place.world else ""
                needs = f"it then needs {bytes_text(mesh.node_bytes)}, and the training stays the same"
                return f"{fewer}set {mesh.words}: {needs}"
        return advice(self.config, needed, have, settled, moments)

    def choices(self, most: int | None = None) -> Iterator[Choice]:
        """Yield the memory for the supported meshes of these ranks, nearest first.

        most: the limit in bytes per node.
        """
        for config in meshes(self.config, self.place.world):
            other = replace(self, config=config)
            if most is not None and other.least_bytes() > most:
                continue
            try:
                found = Choice(config, self.place, sum(other.bytes().values()))
            except UserError:
                continue  # this mesh cannot run the graphs
            if most is None or found.node_bytes <= most:
                yield found

    def nearest(self, have: Callable[[Place], int]) -> Choice | None:
        """Return the nearest mesh that fits into memory: on these nodes, else on twice as many, repeatedly.

        Try the same number of ranks on a node first, then fewer. Return None if the batch and its shards do not allow
        such a number of ranks.
        """
        fitting = (
            found
            for place in self.place.others(MOST_RANKS)
            if (found := next(replace(self, place=place).choices(have(place)), None))
        )
        return next(fitting, None)

    @property
    def trained(self) -> int:
        """The number of trained parameters, without sharded experts."""
        return self._counted.trained

    @cached_property
    def _counted(self) -> _Counted:
        from mudd_core.engine.frozen import choose_trained
        from mudd_core.engine.model import Model

        group = expert_group(self.config.mesh, None, self.place)
        stored = self.stored.of(self.shape, self.config)
        model = Model(self.shape, booked_only=True, stored=stored, experts=group, lora=lora_of(self.config))
        model.train_only(choose_trained(model.store, self.config.trained))
        store = model.store
        groups = optimizer_groups(store, self.config.optim)
        by_rows = {name for one in groups if one.by_rows for name in one.names}
        tables = 0
        sizes = {True: [0], False: [0]}  # trained weights of sharded experts (True), and all others
        for name in store.names():
            about = store.describe(name)
            if about["trainable"]:
                tables += math.prod(about["shape"]) if name in by_rows else 0
                sizes[group is not None and len(about["shape"]) == EXPERT_AXES].append(
                    math.prod(about["shape"])
                )
        held = store.expert_bytes([])["weights"] if group else 0
        weights, trained = store.plane_bytes - held, sum(sizes[False])
        return _Counted(weights, trained, tables, held, sum(sizes[True]), *map(max, sizes.values()))

    def least_bytes(self) -> int:
        """Return only the bytes of a node's weights, gradients and one moment.

        This is a fast check, because planning the updates of a model that is far too large takes seconds.
        """
        found, place, mesh = self._counted, self.place, self.config.mesh
        share = place.on_a_node / place.world
        moments = int(2 * share * (found.trained - found.tables + found.expert_trained))
        dense = int(share * found.weights) if mesh.zero == 3 else found.weights
        return dense + place.on_a_node * found.expert_weights + moments + self._least_gradients(found)

    def _least_gradients(self, found: _Counted) -> int:
        """Return the bytes of a node's gradients with one graph run per step, without the buckets of mesh.zero=3."""
        place, mesh = self.place, self.config.mesh
        cut = mesh.zero == 3
        experts = 4 * found.expert_trained // (place.world if cut else mesh.expert)
        each = 4 * found.trained // place.world if cut else 4 * (found.trained - found.tables)
        return place.on_a_node * (experts + each)

    def _exchange_bytes(self, report: Mapping[str, int]) -> int:
        """Return the maximum bytes of a rank's message buffers to other nodes. report: the other bytes of the rank.

        Two buckets of gradients or weights are in transit at a time. Each is as large as the largest parameter plus the
        4 MiB that fill a bucket. With mesh.zero=3 the messages of a bucket end before its memory is used again, so they
        need only the gradients that other ranks own; the weights of two layers are added to this. Token rows for
        experts are sent directly from and to the activations.
        """
        place, found = self.place, self._counted
        if place.world == place.on_a_node:
            return 0
        own = self.config.mesh.expert
        experts = (
            4 * found.expert_largest // own if own < place.world else 0
        )  # each rank has different experts
        dense = min(2 * (4 * found.largest + BUCKET), 4 * found.trained)
        if self.config.mesh.zero == 3:
            slices = 4 * (found.trained + found.expert_trained) // place.world
            dense = min(dense, report["gradients"] - slices)
        return max(dense // place.on_a_node, 2 * experts) + report.get("gathered", 0)


@dataclass(frozen=True)
class _Counted:
    """Counts of a model's weights.

    weights: bytes. trained: trained elements. tables: trained elements of tables that an optimizer updates by rows,
    without moments of elements; a step may have gradients of few rows. largest: elements of the largest parameter.

    The other fields are the same for sharded experts; expert_weights are the bytes of one rank.
    """

    weights: int
    trained: int
    tables: int
    expert_weights: int
    expert_trained: int
    expert_largest: int
    largest: int
