"""The state of an engine in a checkpoint, as parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, whole_parts
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, made_tensor
from mudd_core.engine.expert_load import ExpertLoad
from mudd_core.engine.frozen import weight_view
from mudd_core.engine.lora import own_names
from mudd_core.engine.weight_average import AVERAGED, WeightAverage

if TYPE_CHECKING:
    from mudd_core import _core

MOMENTS = ("first_moment", "second_moment", "row_moment", "column_moment", "row_update")
_OF_ROWS = (np.float32, np.float32, np.float32)  # types of the moments after the second one
UPDATES = "updates/count"


def average_name(name: str) -> str:
    """Return the name of a weight's average in a checkpoint."""
    return f"average/{name}"


class EngineState:
    """The saved state: `<name>` weights, `first_moment/<name>`, `second_moment/<name>`, update count, loads of experts.

    With adapters, only their weights are included: the base has a separate file. Frozen parameters have no moments, and
    their weights keep their stored type. With train.average also `average/<name>` of the trained weights, and the
    counts of updates/averaged; a checkpoint may lack both. Lion, sgd and the matrices of muon have no second moment. A
    factored one is `row_moment/<name>` and `column_moment/<name>`. Tables of row_adagrad have `row_moment/<name>` and
    `row_update/<name>`, the number of each row's last update. A bf16 moment is stored as uint16.
    """

    def __init__(
        self,
        store: _core.ParamStore,
        moment_planes: Sequence[int],
        load: ExpertLoad | None,
        average: WeightAverage | None = None,
    ) -> None:
        """Wrap a store. moment_planes: indices of the planes of TrainStep.moment_planes."""
        self._store, self._load, self._average = store, load, average
        self._moments = list(zip(MOMENTS, moment_planes, strict=False))
        self._updates = np.zeros(1, np.int64)

    @property
    def updates(self) -> int:
        """The number of updates so far, without skipped ones."""
        return int(self._updates[0])

    def count_update(self) -> None:
        """Count one more update."""
        self._updates += 1

    def parts(self, *, writable: bool = False) -> list[StatePart]:
        """Return views of the whole state.

        writable: make them writable, to read a checkpoint into; `load` must follow.
        """
        parts = []
        for name in own_names(self._store):
            if self._store.holds(0, name):
                parts.append(self._part(name, 0, name, writable))
            for moment, plane in self._moments:
                if self._store.holds(plane, name):
                    parts.append(self._part(f"{moment}/{name}", plane, name, writable))
        rest = {UPDATES: self._updates, **(self._load.state() if self._load is not None else {})}
        for name, array in rest.items():
            parts.append(StatePart(name, array.shape, 0, _view(array, writable)))
        return [*parts, *self._average_parts(writable)]

    def _average_parts(self, writable: bool) -> list[StatePart]:
        """Return the parts of the average; empty without train.average."""
        if self._average is None:
            return []
        if not writable:
            self._average.fill()
        plane, counted = self._average.plane, _view(self._average.counted, writable)
        names = [name for name in own_names(self._store) if self._store.holds(plane, name)]
        parts = [self._part(average_name(name), plane, name, writable) for name in names]
        parts.append(StatePart(AVERAGED, counted.shape, 0, counted))
        return [replace(part, optional=True) for part in parts]

    def parts_of(
        self, weights: Mapping[str, StoredTensor], moments: Sequence[npt.DTypeLike]
    ) -> list[StatePart]:
        """Return the parts before the first update. Each is created on request, because the store may have no memory.

        weights: by name, in the types of the store. moments: dtypes of the first two; others are float32.
        """
        found: dict[str, AnyTensor] = {}
        for name in own_names(self._store):
            found[name] = weights[name]
            for (moment, plane), dtype in zip(self._moments, [*moments, *_OF_ROWS], strict=False):
                if self._store.holds(plane, name):
                    shape = self._store.shape(plane, name)
                    found[f"{moment}/{name}"] = made_tensor(shape, dtype, partial(np.zeros, shape, dtype))
        found[UPDATES] = self._updates
        return whole_parts({**found, **(self._load.state() if self._load is not None else {})})

    def _part(self, label: str, plane: int, name: str, writable: bool) -> StatePart:
        if plane == 0:
            return _weight_part(self._store, name, writable)
        view = self._store.view(plane, name, writable)
        begin = self._store.held(plane, name)[0]
        return StatePart(label, self._store.shape(plane, name), begin, view, live=True)

    def load(self, parts: Iterable[StatePart]) -> None:
        """Load parts that cover all of `parts`, then repack the weights. A part already in place is not copied."""
        given = {part.name: part for part in parts}
        own = self.parts(writable=True)
        missing = sorted(part.name for part in own if part.name not in given)
        if missing:
            raise UserError(f"[checkpoint] tensors: '{missing[0]}' is missing ({len(missing)} in all)")
        pairs = [(part, given[part.name]) for part in own]
        for part, source in pairs:
            _check(part, source)
        for part, source in pairs:
            if _address(source) != _address(part):
                part.array[...] = source.cut(part.begin, part.end).array
        self._store.repack()


def _view(array: Array, writable: bool) -> Array:
    view = array.view()
    view.flags.writeable = writable
    return view


def weight_parts(store: _core.ParamStore, names: Sequence[str] | None = None) -> list[StatePart]:
    """Return writable views of this rank's weights to read a checkpoint into; store.repack() must follow.

    names: the weights to return. None: the weights in checkpoints, which are only the adapters if there are any.
    """
    wanted = own_names(store) if names is None else names
    return [_weight_part(store, name, True) for name in wanted if store.holds(0, name)]


def _weight_part(store: _core.ParamStore, name: str, writable: bool) -> StatePart:
    view, shape = weight_view(store, name, writable), store.describe(name)["shape"]
    return StatePart(name, shape, store.held(0, name)[0], view, shared=store.shared(name), live=True)


def _address(part: StatePart) -> int:
    address: int = part.array.__array_interface__["data"][0]
    return address


def _check(part: StatePart, source: StatePart) -> None:
    if (source.global_shape, source.dtype) != (part.global_shape, part.dtype):
        raise ValueError(
            f"[checkpoint] {part.name}: expected {part.dtype} {part.global_shape}, got {source.dtype} "
            f"{source.global_shape}"
        )
    if source.begin > part.begin or source.end < part.end:
        raise ValueError(
            f"[checkpoint] {part.name}: expected elements {part.begin} to {part.end}, "
            f"got {source.begin} to {source.end}"
        )
