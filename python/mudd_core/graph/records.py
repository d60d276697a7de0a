"""The tape: records of ops, and the walk back through them.

Order and arithmetic equal the planned executor's, so both return the same bits. Calls are walked backwards; the first
writer of a gradient sets it, later ones add to it. The gradients of several uses of one leaf weight are summed in the
order of the uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mudd_core.base.in_use import InUse
from mudd_core.base.types import Array
from mudd_core.graph.differentiable import Differentiable

if TYPE_CHECKING:
    from mudd_core.graph.tape import Tensor

_order = itertools.count()


class Call(Protocol):
    """The interface of an op that has run, either an op of the core or a function of NumPy."""

    def backward(
        self,
        dout: list[Array | None],
        into: list[Array | None],
        accumulate: Sequence[bool],
        round: Sequence[bool] = ...,
    ) -> None:
        """Write the gradient of each input whose entry in `into` is an array, or add to it if `accumulate` says so."""

    def passes_gradient(self) -> int:
        """Return the index of the input whose gradient equals the output's gradient, or -1."""

    def weight_like(self, i: int) -> bool:
        """Return True if the gradient of this input is kept in fp32."""


class FunctionCall:
    """A function of NumPy applied to arrays."""

    def __init__(self, function: Differentiable, inputs: Sequence[Array]) -> None:
        self._function, self._inputs = function, inputs

    def backward(
        self,
        dout: list[Array | None],
        into: list[Array | None],
        accumulate: Sequence[bool],
        round: Sequence[bool] = (),
    ) -> None:
        """Write or add the gradients of the inputs whose entry in `into` is an array."""
        (dy,) = dout
        assert dy is not None
        for index, place in enumerate(into):
            if place is not None:
                gradient = self._function.gradient(index, dy, self._inputs)
                place[...] = gradient + place if accumulate[index] else gradient

    def passes_gradient(self) -> int:
        """Return -1: every gradient is written."""
        return -1

    def weight_like(self, i: int) -> bool:
        """Return True: any input may be a parameter, as in mudd_core.custom."""
        return True


class Record:
    """One op on the tape: the call, its inputs, and the gradients of its outputs during a backward."""

    def __init__(self, call: Call, inputs: Sequence[Tensor | None], outputs: int) -> None:
        self.order = next(_order)
        self.call = call
        self.inputs = inputs
        self.dout: list[Array | None] = [None] * outputs
        self.in_use = InUse("backward")


def walk_back(seeds: Sequence[tuple[Tensor, Array]], watched: Sequence[Tensor] = ()) -> list[Array | None]:
    """Compute the gradients of all leaves that these tensors depend on. seeds: tensors with their gradients.

    Return the gradients of the watched tensors, None for a tensor without one.
    """
    records = _reachable([tensor._record for tensor, _ in seeds if tensor._record is not None])
    leaves: dict[int, tuple[Tensor, list[tuple[int, Array]]]] = {}
    with ExitStack() as held:
        for guard in _guards(records):
            held.enter_context(guard)
        try:
            for tensor, seed in seeds:
                if tensor._record is not None:
                    tensor._record.dout[tensor._output] = seed
            for record in records:
                if any(d is not None for d in record.dout):
                    _walk(record, leaves)
            found = [None if one._record is None else one._record.dout[one._output] for one in watched]
        finally:
            for record in records:
                record.dout = [None] * len(record.dout)
        for leaf, uses in leaves.values():
            total = sum_in_order([use for _, use in sorted(uses, key=lambda pair: pair[0])])
            leaf.grad = total if leaf.grad is None else leaf.grad + total
    return found


def _guards(records: Sequence[Record]) -> Iterator[InUse]:
    """Yield the guards of all that a backward writes: the records, and their leaves once for each use."""
    for record in records:
        yield record.in_use
        for tensor in record.inputs:
            if tensor is not None and tensor.is_weight:
                yield tensor.in_use


def sum_in_order(arrays: list[Array]) -> Array:
    """Return ((a0 + a1) + a2) + ..."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def _reachable(roots: Sequence[Record]) -> list[Record]:
    """Return all records that these depend on, newest first."""
    found = {id(root): root for root in roots}
    stack = list(found.values())
    while stack:
        for tensor in stack.pop().inputs:
            record = tensor._record if tensor is not None else None
            if record is not None and id(record) not in found:
                found[id(record)] = record
                stack.append(record)
    return sorted(found.values(), key=lambda record: record.order, reverse=True)


def _walk(record: Record, leaves: dict[int, tuple[Tensor, list[tuple[int, Array]]]]) -> None:
    """Run the backward of one op: add to the gradients of earlier results and to the uses of leaves."""
    into: list[Array | None] = []
    accumulate: list[bool] = []
    round_to_bf16: list[bool] = []
    for index, tensor in enumerate(record.inputs):
        place: Array | None = None
        add = False
        if tensor is not None and tensor._wants:
            before = tensor._record
            if before is None:
                place = np.empty(tensor.shape, np.float32)
                leaves.setdefault(id(tensor), (tensor, []))[1].append((record.order, place))
            else:
                held = before.dout[tensor._output]
                add = held is not None
                place = held if held is not None else np.empty(tensor.shape, tensor.dtype)
                before.dout[tensor._output] = place
        into.append(place)
        accumulate.append(add)
        round_to_bf16.append(
            tensor is not None
            and tensor._rounded
            and tensor._readers == 1  # a sum over several readers stays in fp32, as do weights
            and index != record.call.passes_gradient()
            and not record.call.weight_like(index)
        )
    record.call.backward(list(record.dout), into, accumulate, round_to_bf16)
