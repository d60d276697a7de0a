"""The ranks that the memory of a run is planned for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mudd_core.config import Config, mesh_of
from mudd_core.engine.batch_part import BatchPart


@dataclass(frozen=True)
class Place:
    """The ranks that the memory of a run is for: how many in all, and on a node."""

    world: int = 1
    on_a_node: int = 1

    @property
    def nodes(self) -> int:
        """Nodes, of which the last may have fewer ranks."""
        return -(-self.world // self.on_a_node)

    def smaller(self) -> Iterator[Place]:
        """This place, and those of half as many ranks each time on as many nodes."""
        world, nodes = self.world, self.nodes
        yield self
        while world % 2 == 0 and world // 2 >= nodes:
            world //= 2
            yield Place(world, -(-world // nodes))

    def others(self, most: int) -> Iterator[Place]:
        """This place, and those with fewer ranks a node or on twice as many nodes each time, up to so many ranks."""
        place = self
        while place.nodes <= most:
            yield from (found for found in place.smaller() if found.world <= most)
            place = Place(2 * place.world, place.on_a_node)

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
        return replace(
            config,
            train=replace(train, batch_size=part.samples, logical_shards=part.shards),
            eval=replace(config.eval, batch_size=validated),
        )

    def fewest_samples(self, config: Config) -> int:
        """Sequences of a step of the rank with the fewest, the last one."""
        train = config.train
        return BatchPart.of(train.batch_size, train.shard_count(), self.world - 1, self.world).samples

    def mapped(self, report: Mapping[str, int]) -> int:
        """Bytes of address space of a rank, by the report of `shared`: it maps what its node shares, all of it."""
        windows = ("weights", "packed", "gathered", "gradients")
        return sum(count * (self.on_a_node if kind in windows else 1) for kind, count in report.items())

    def shared(
        self,
        report: Mapping[str, int],
        slices: bool = False,
        experts: Mapping[str, int] | None = None,
        expert_ranks: int = 1,
    ) -> dict[str, int]:
        """A rank's share of what one process would need: a node has one copy of the weights, a rank its own experts.

        slices: the report is of the slices of a rank (mesh.zero=3). experts: bytes in the report of experts that are
        dealt out to expert_ranks; ranks with the same ones share out their moments, which slices have done already.
        """
        cut = {"weights": self.on_a_node, "packed": self.on_a_node, "moments": self.world}
        if slices:
            cut = {"gathered": self.on_a_node, "packed": self.on_a_node}
            if self.world == self.on_a_node:  # one node, which has its weights once
                cut["weights"] = self.on_a_node
        own, owners = experts or {}, {"moments": 1 if slices else self.world // expert_ranks}
        return {
            kind: -(-(count - own.get(kind, 0)) // cut.get(kind, 1))
            - (-own.get(kind, 0) // owners.get(kind, 1))
            for kind, count in report.items()
        }


ALONE = Place()
