"""The sharding of weights, gradients and optimizer state across ranks (mesh.zero=3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.dist import Comm
from mudd_core.engine.optimizer_groups import ParameterGroup


@dataclass(frozen=True)
class Cut:
    """The shard of rank `owner` among `owners` ranks.

    holds_slices: there are several nodes, and a rank stores only its own slices of the weights. whole: names of the
    parameters whose matrices are not split, because their optimizer needs whole matrices.
    """

    owners: int
    owner: int
    holds_slices: bool
    whole: tuple[str, ...] = ()

    @classmethod
    def of(cls, comm: Comm, whole: Sequence[str]) -> Cut:
        """Return the shard of this rank."""
        owner = (
            comm.node_rank * comm.nodes + comm.node
        )  # ranks with the same index in their nodes are neighbours
        return cls(comm.world, owner, comm.nodes > 1, tuple(whole))

    def apply(self, store: _core.ParamStore) -> None:
        """Shard a store that is not allocated yet."""
        store.cut(self.owners, self.owner, list(self.whole), self.holds_slices)


@dataclass(frozen=True)
class Spread:
    """The distribution of a model over ranks: arguments of Model."""

    comm: Comm | None = None
    experts: _core.ExpertGroup | None = None
    cut: Cut | None = None


def whole_names(groups: Sequence[ParameterGroup]) -> tuple[str, ...]:
    """Return the names of the parameters whose optimizer needs whole matrices."""
    return tuple(name for group in groups if group.whole_matrices for name in group.names)
