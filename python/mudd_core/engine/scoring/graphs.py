"""The two graphs of a score: the final states of sequences, and the losses of chosen states."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array, Float32, Int32
from mudd_core.engine.generate import Caches, cache_inputs
from mudd_core.engine.model import Model
from mudd_core.graph.recording import Recorder, Value, recorded, running
from mudd_core.models import Batch, model_function
from mudd_core.models.hidden import Hidden

_KEPT = 12  # planned graphs of different shapes that are kept

Planned = TypeVar("Planned")
Sums = tuple[Array, Array, Array]  # nats float64 [N], targets float64 [N], guessed float32 [N]


class Graphs:
    """The graphs over a model's weights, planned by shape; the last few are kept."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._config = model.config
        self._plans: OrderedDict[Hashable, tuple[_core.Executor, tuple[int, ...]]] = OrderedDict()
        self._head_names = self._names_of_head()

    def states(self, ids: Int32, caches: Caches | None = None, cached: int = 0) -> Float32:
        """Return a view of the final states [B, T, D] of ids [B, T]; the next call of this shape overwrites it.

        caches: contain the keys and values of `cached` earlier ids; those ids are followed by `ids` in the first B
        sequences.
        """
        positions = 0 if caches is None else next(iter(caches.values())).shape[2]
        executor, (number,) = self._planned(
            ("states", *ids.shape, positions), lambda: self._plan_states(ids.shape, caches)
        )
        executor.set("inputs", np.ascontiguousarray(ids))
        for name, array in (caches or {}).items():
            executor.attach(name, array[: len(ids)])
        executor.run(cache_length=cached)
        states: Float32 = executor.get(number)
        return states

    def losses(self, states: Float32, targets: Int32) -> Sums:
        """Return the summed nats, the number of targets and of correct predictions of each sequence.

        states: [N, C, D], N a power of two. targets: [N, C]; a negative one is ignored.
        """
        executor, (nats, counted, guessed) = self._planned(
            ("losses", *targets.shape), lambda: self._plan_losses(targets.shape)
        )
        executor.set("states", states)
        executor.set("targets", targets)
        executor.run()
        return (
            np.array(executor.get(nats)),
            np.array(executor.get(counted)),
            np.array(executor.get(guessed)[:, 0]),
        )

    def _planned(
        self, key: Hashable, plan: Callable[[], tuple[_core.Executor, tuple[int, ...]]]
    ) -> tuple[_core.Executor, tuple[int, ...]]:
        if key not in self._plans:
            while len(self._plans) >= _KEPT:
                self._plans.popitem(last=False)
            self._plans[key] = plan()
        self._plans.move_to_end(key)
        return self._plans[key]

    def _plan_states(
        self, shape: tuple[int, ...], caches: Caches | None
    ) -> tuple[_core.Executor, tuple[int, ...]]:
        store = self._model.store
        recorder = Recorder(store, training=False, samples=shape[0], shards=1)
        inputs, cache = recorder.input("inputs", shape), None
        if caches is not None:
            cache = cache_inputs(self._config, recorder, caches, shape[0], ring=False)
        with running(recorder):
            hidden = model_function(self._config)(self._config, Batch(inputs), cache)
        number = recorded(hidden.h).number
        return _core.Executor(recorder.graph, store, losses=[], keep=[number]), (number,)

    def _plan_losses(self, shape: tuple[int, ...]) -> tuple[_core.Executor, tuple[int, ...]]:
        store = self._model.store
        recorder = Recorder(store, training=False, samples=shape[0], shards=shape[0])
        states = recorder.input("states", (*shape, self._config.d_model), "float32")
        targets = recorder.input("targets", shape)
        head, bias = (
            None if name is None else Value(recorder, recorder.graph.parameter(store, name))
            for name in self._head_names
        )
        assert head is not None
        with running(recorder):
            outputs = Hidden(states, head, bias=bias).loss(targets)
        numbers = tuple(recorded(value).number for value in outputs)
        return _core.Executor(recorder.graph, store, losses=[], keep=[*numbers]), numbers

    def _names_of_head(self) -> tuple[str, str | None]:
        """Return the names of the head and of its bias, which is None if there is none."""
        recorder = Recorder(self._model.store, training=False, samples=1, shards=1)
        with running(recorder):
            hidden = model_function(self._config)(self._config, Batch(recorder.input("inputs", (1, 1))), None)
        head, bias = (
            None if value is None else recorded(value).number for value in (hidden.head, hidden.bias)
        )
        names = recorder.parameters
        if head not in names or (bias is not None and bias not in names):
            raise ValueError(
                f"[score] model: expected a family whose head is a parameter, got {self._config.family}, which "
                "computes it"
            )
        return names[head], None if bias is None else names[bias]
