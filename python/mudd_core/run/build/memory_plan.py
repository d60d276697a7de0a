"""Memory of a run, planned before it is allocated: what --plan prints and what a start refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from mudd_core.base.units import bytes_text
from mudd_core.config import Config, MeshConfig, ModelConfig, check_config, mesh_of
from mudd_core.config.fields import replace_path
from mudd_core.config.tune import lora_of
from mudd_core.engine import memory
from mudd_core.engine.batch_part import BatchPart
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.build.stored_types import StoredTypes, stored_in
from mudd_core.run.store.checkpoints import Checkpoints


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of a model in training by the ranks of `place`. stored: types that its frozen weights come in."""

    shape: ModelConfig
    config: Config
    place: Place
    stored: StoredTypes

    @classmethod
    def of(
        cls, shape: ModelConfig, config: Config, place: Place = ALONE, checkpoints: Checkpoints | None = None
    ) -> MemoryPlan:
        """The plan of a run whose checkpoints, if it has any, say how frozen weights are stored."""
        return cls(shape, config, place, stored_in(config, checkpoints))

    def bytes(self) -> dict[str, int]:
        """Return the memory by kind that a rank will take on top of the program; takes none of it."""
        config, place = self.config, self.place
        if place.world == 1:
            return plan_model(self.shape, config, only=True, stored=self.stored)[2]
        mesh_of(config, place.world)  # a changed config may not fit the ranks
        own = place.config_of_rank(config)
        _, engine, report = plan_model(self.shape, own, only=True, stored=self.stored, place=place)
        if config.mesh.zero < 3 and place.world > place.on_a_node:
            # Whole tables go between nodes, not the rows that were read.
            report["gradients"] = engine.gradient_bytes(gradient_rows=False)
        return place.shared(report, config.mesh.zero == 3, engine.expert_report(), config.mesh.expert)

    def require(self, what: str = "training") -> dict[str, int]:
        """Return the bytes by kind; UserError, with advice, if the ranks of a node do not fit into its memory."""
        least = self._least_bytes()
        part = f"{what} (weights, gradients and one moment alone)"
        memory.require(least, part, lambda have: self._settings_for(have, least))
        report = self.bytes()
        memory.require(
            self.place.on_a_node * sum(report.values()), what, lambda have: self.advice(report, have)
        )
        memory.require_mappable(self.place.mapped(report), what, lambda have: self.advice(report, have))
        return report

    def advice(self, report: Mapping[str, int], have: int) -> str:
        """Return what to change so that a run whose ranks need `report` fits into `have` bytes."""
        ranks = self.place.on_a_node
        _, trained = self._counted()  # the gradients are at least as large as the weights that train
        settled = (report["weights"] + 4 * trained + report["moments"]) * ranks
        whole = self.config.optim.moment_dtype == "fp32"  # half of the first of two moments
        return self._settings_for(have, settled, report["moments"] // 4 * ranks if whole else 0)

    def _settings_for(self, have: int, settled: int, rounding: int = 0) -> str:
        """As `advice`; settled: bytes of a node that no batch changes; rounding: those that a bf16 moment saves."""
        from mudd_core.run.build.memory_advice import advice

        shape, ranks = self.shape, self.place.on_a_node

        @cache
        def least_bytes(own: ModelConfig, mesh: MeshConfig) -> int:  # no change of the batch changes it
            return replace(self, shape=own, config=replace(self.config, mesh=mesh))._least_bytes()

        def needed(changed: Config) -> int:
            check_config(changed)
            own = dataclasses.replace(
                changed.model, vocab_size=shape.vocab_size, max_seq_len=shape.max_seq_len
            )
            least = least_bytes(own, changed.mesh)
            if least > have:
                return least
            return ranks * sum(replace(self, shape=own, config=changed).bytes().values())

        if self.place.world > 1 and self.config.mesh.zero == 1:
            cut = replace_path(self.config, "mesh.zero", 3)
            if (found := needed(cut)) <= have:
                return f"set mesh.zero=3: it then needs {bytes_text(found)}, and the training stays the same"
        return advice(self.config, needed, have, settled, rounding)

    def _counted(self) -> tuple[int, int]:
        """Bytes of the weights, and number of those that train."""
        from mudd_core.engine.model import Model
        from mudd_core.engine.trainable import choose_trained

        stored = self.stored.of(self.shape, self.config)
        model = Model(self.shape, booked_only=True, stored=stored, lora=lora_of(self.config))
        choose_trained(model, self.config.trained)
        return model.store.plane_bytes, model.store.trained_elements

    def _least_bytes(self) -> int:
        """Bytes of a node's weights, gradients and one moment alone.

        Planning the updates of a model far too large takes seconds; counting its weights does not.
        """
        weights, trained = self._counted()
        place = self.place
        if place.world == 1:
            return weights + 6 * trained
        if self.config.mesh.zero == 3:
            return (weights + 6 * trained) * place.on_a_node // place.world
        return weights + (4 * place.on_a_node + 2) * trained
