"""The ranks for which the memory of a run is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mudd_core.config import Config, mesh_of
from mudd_core.engine.batch_part import BatchPart


@dataclass(frozen=True)
class Place:
    """The ranks of a memory plan: their total number, and the number on a node."""

    world: int = 1
    on_a_node: int = 1

    @property
    def nodes(self) -> int:
        """The number of nodes. The last node may have fewer ranks."""
        return -(-self.world // self.on_a_node)

    def smaller(self) -> Iterator[Place]:
        """Yield this place, then places on as many nodes with half as many ranks each time."""
        world, nodes = self.world, self.nodes
        yield self
        while world % 2 == 0 and world // 2 >= nodes:
            world //= 2
            yield Place(world, -(-world // nodes))

    def others(self, most: int) -> Iterator[Place]:
        """Yield this place, then places with fewer ranks on a node or twice as many nodes, up to `most` ranks."""
        place = self
        while place.nodes <= most:
            yield from (found for found in place.smaller() if found.world <= most)
            place = Place(2 * place.world, place.on_a_node)

    def text(self, config: Config) -> str:
        """Return a description of the ranks for the user."""
        shared = "; a node has one copy of the weights, of which a rank's share is counted"
        mesh = mesh_of(config, self.world)
        return f"{self.world} as {mesh}, {self.on_a_node} on a node" + (shared if self.on_a_node > 1 else "")

    def config_of_rank(self, config: Config) -> Config:
        """Return a config of one process with the graphs of the first rank, which has the most sequences."""
        train = config.train
        part = BatchPart.of(train.batch_size, train.shard_count(), 0, self.world)
        validated = config.eval.batch_size or train.batch_size
        return replace(
            config,
            train=replace(train, batch_size=part.samples, logical_shards=part.shards),
            eval=replace(config.eval, batch_size=validated),
        )

    def fewest_samples(self, config: Config) -> int:
        """Return the sequences in a step of the last rank, which has the fewest."""
        train = config.train
        return BatchPart.of(train.batch_size, train.shard_count(), self.world - 1, self.world).samples

    def mapped(self, report: Mapping[str, int]) -> int:
        """Return a rank's bytes of address space: a rank maps all shared memory of its node.

        report: the result of `shared`.
        """
        windows = ("weights", "packed", "gathered", "gradients")
        return sum(count * (self.on_a_node if kind in windows else 1) for kind, count in report.items())

    def shared(
        self,
        report: Mapping[str, int],
        slices: bool = False,
        experts: Mapping[str, int] | None = None,
        expert_ranks: int = 1,
    ) -> dict[str, int]:
        """Return a rank's part of one process's memory. A node has one copy of the weights; a rank has its own experts.

        slices: the report is for a rank's slices (mesh.zero=3). experts: the bytes of experts that are sharded across
        expert_ranks. Ranks with the same experts also shard their moments, unless `slices` has done so.
        """
        cut = {"weights": self.on_a_node, "packed": self.on_a_node, "moments": self.world}
        if slices:
            cut = {"gathered": self.on_a_node, "packed": self.on_a_node}
            if self.world == self.on_a_node:  # one node with one copy of the weights
                cut["weights"] = self.on_a_node
        own, owners = experts or {}, {"moments": 1 if slices else self.world // expert_ranks}
        return {
            kind: -(-(count - own.get(kind, 0)) // cut.get(kind, 1))
            - (-own.get(kind, 0) // owners.get(kind, 1))
            for kind, count in report.items()
        }


ALONE = Place()
