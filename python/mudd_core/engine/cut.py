"""How the ranks of a run cut weights, gradients and the optimizer's state among them (mesh.zero=3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.config.optim import SPECS
from mudd_core.dist import Comm
from mudd_core.engine.optimizer_groups import ParameterGroup


@dataclass(frozen=True)
class Cut:
    """The part of `owner`, one of `owners` ranks.

    holds_slices: there are several nodes, and of the weights a rank has its own slices alone. whole: names of the
    parameters whose matrices have one owner each, as their optimizer needs them.
    """

    owners: int
    owner: int
    holds_slices: bool
    whole: tuple[str, ...] = ()

    @classmethod
    def of(cls, comm: Comm, whole: Sequence[str]) -> Cut:
        """The part of this rank."""
        owner = (
            comm.node_rank * comm.nodes + comm.node
        )  # those of one number inside their nodes are neighbours
        return cls(comm.world, owner, comm.nodes > 1, tuple(whole))

    def apply(self, store: _core.ParamStore) -> None:
        """Cut a store that is not allocated yet."""
        store.cut(self.owners, self.owner, list(self.whole), self.holds_slices)


@dataclass(frozen=True)
class Spread:
    """How the ranks hold a model between them: arguments of Model."""

    comm: Comm | None = None
    experts: _core.ExpertGroup | None = None
    cut: Cut | None = None


def whole_names(groups: Sequence[ParameterGroup]) -> tuple[str, ...]:
    """Names of the parameters whose optimizer needs whole matrices."""
    return tuple(name for group in groups if SPECS[group.optimizer].whole_matrices for name in group.names)
