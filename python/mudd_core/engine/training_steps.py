"""The core's steps of a training: one for each set of optional inputs, over the same weights and moments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mudd_core import _core

if TYPE_CHECKING:
    from mudd_core.engine.optimizer_groups import ParameterGroup
    from mudd_core.engine.planned import Planned
    from mudd_core.engine.training_graphs import TrainingGraphs


class TrainingSteps:
    """The steps of an engine. first: over graphs with the optional inputs `parts`, whose moments all steps share.

    planned: the graph of `first`.
    """

    def __init__(self, graphs: TrainingGraphs, groups: list[ParameterGroup], parts: tuple[str, ...]) -> None:
        self._graphs, self._groups, self._parts = graphs, groups, parts
        self.planned = graphs.plan(parts)
        self.first = graphs.step(self.planned, groups)
        self._steps: dict[tuple[str, ...], _core.TrainStep] = {parts: self.first}
        self._observer: _core.NodeObserver | None = None  # of the steps in `observed`, and their graphs
        self._observed: tuple[Planned, _core.TrainStep] | None = None

    def over(self, parts: tuple[str, ...]) -> _core.TrainStep:
        """Return the step over graphs with these optional inputs."""
        if self._observer is not None:
            planned = self._graphs.plan(parts, whole_gradients=True)
            step = self._graphs.step(planned, self._groups, self.first)
            if self._observed is not None and self._observed[0] is not planned:
                self._observed[1].observe(None)
                self._release_observed()
            step.observe(self._observer)
            self._observed = (planned, step)
            return step
        self._release_observed()
        if parts != self._parts:
            self.settle()  # the weights that another step still exchanges
        if parts not in self._steps:  # a new graph over the same weights and moments
            planned = self._graphs.plan(parts)
            self._steps[parts] = self._graphs.step(planned, self._groups, self.first)
        return self._steps[parts]

    @contextmanager
    def observed(self, observer: _core.NodeObserver) -> Iterator[None]:
        """Show each value of the steps inside the block to an observer; see Engine.observed."""
        self.settle()
        self.planned.executor.release()
        self._observer = observer
        try:
            yield
        finally:
            self._observer = None
            if self._observed is not None:
                self._observed[1].settle()
                self._observed[1].observe(None)

    def _release_observed(self) -> None:
        """Return the memory of the last observed step, which another one would use again."""
        if self._observed is not None:
            self._observed[0].executor.release()
            self._observed = None

    def settle(self) -> None:
        """Wait until all weights of the last step have arrived; all ranks call it together."""
        for step in self._steps.values():
            step.settle()

    def release(self) -> None:
        """Return the memory of activations and gradients to the system; the next step allocates it again."""
        self.planned.executor.release()
        self._release_observed()
