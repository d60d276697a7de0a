"""The immediate executor: ops on NumPy arrays run at once, and a tape walks back through them.

`Tensor` wraps an array. Ops on tensors are recorded; `loss.backward()` fills `.grad` of the leaves that were made
with `requires_grad=True`. Order and arithmetic are those of the planned executor, so both give the same bits:
calls are walked backwards, the first writer of a gradient sets it, later ones add; the gradients of several uses of
one leaf weight are summed in the order of the uses.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.in_use import InUse
from mudd_core.base.types import Array
from mudd_core.graph import scopes

# The options of an op by name, as its C++ part reads them.
Options: TypeAlias = "dict[str, bool | int | float | str]"
# A function of custom ops: arrays to the outputs, or to the gradients of the inputs.
NumpyFunction: TypeAlias = "Callable[..., Array | Sequence[Array | None]]"
Results: TypeAlias = "Tensor | Array | tuple[Tensor | Array, ...]"

_order = itertools.count()
_counting = threading.Lock()  # of the readers of a tensor


def as_array(data: npt.ArrayLike) -> Array:
    """The array itself, or one of a list or number; fractions become float32."""
    array = np.asarray(data)
    return (
        array.astype(np.float32) if array.dtype == np.float64 and not isinstance(data, np.ndarray) else array
    )


class _Record:
    """One op on the tape: the call, its inputs, the gradients of its backward."""

    def __init__(self, call: _core.Call, inputs: Sequence[Tensor | None], outputs: int) -> None:
        self.order = next(_order)
        self.call = call
        self.inputs = inputs
        self.dout: list[Array | None] = [None] * outputs
        self.in_use = InUse("backward")


class Tensor:
    """A NumPy array on the tape.

    data: float32 (or int32 for indices), never copied. requires_grad: collect its gradient in `.grad`.
    """

    def __init__(self, data: npt.ArrayLike, requires_grad: bool = False) -> None:
        array = as_array(data)
        if requires_grad and array.dtype != np.float32:
            raise TypeError(f"[Tensor] data: expected float32 where a gradient is wanted, got {array.dtype}")
        self.data: Array = array
        self.requires_grad = requires_grad
        self.grad: Array | None = None
        self._record: _Record | None = None
        self._output = 0
        self._wants = requires_grad
        self._rounded = False  # a graph would store it in bf16
        self._readers = 0
        self.in_use = InUse("backward")  # while a backward adds to its gradient

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Type of the elements."""
        return self.data.dtype

    def numpy(self) -> Array:
        """The array itself."""
        return self.data

    @property
    def recorded(self) -> bool:
        """Whether backward can begin here: a result of ops on tensors that require gradients."""
        return self._record is not None

    def __repr__(self) -> str:
        return f"Tensor({self.data!r}{', requires_grad=True' if self.requires_grad else ''})"

    def backward(self, gradient: npt.ArrayLike | None = None) -> None:
        """Walk the tape back from here. gradient: that of this tensor, ones by default."""
        if self._record is None:
            raise ValueError(
                "[backward] this tensor is not the result of an op on tensors that require gradients"
            )
        seed = np.ones(self.shape, self.dtype) if gradient is None else np.array(gradient, self.dtype)
        if seed.shape != self.shape:
            raise ValueError(f"[backward] gradient: expected shape {self.shape}, got {seed.shape}")
        _backward_from([(self, seed)])


def backward(*losses: Tensor, watched: Sequence[Tensor] = ()) -> list[Array | None]:
    """Walk the tape back from several losses at once, as the planned executor does: the gradient of their sum.

    Returns the gradients of the watched results, None for one that the losses do not depend on.
    """
    for loss in losses:
        if loss._record is None:
            raise ValueError("[backward] losses: expected results of ops on tensors that require gradients")
    return _backward_from([(loss, np.ones(loss.shape, loss.dtype)) for loss in losses], watched)


def _backward_from(
    seeds: Sequence[tuple[Tensor, Array]], watched: Sequence[Tensor] = ()
) -> list[Array | None]:
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
            found = [tensor._record.dout[tensor._output] if tensor._record else None for tensor in watched]
        finally:
            for record in records:
                record.dout = [None] * len(record.dout)
        for leaf, uses in leaves.values():
            total = sum_in_order([use for _, use in sorted(uses, key=lambda pair: pair[0])])
            leaf.grad = total if leaf.grad is None else leaf.grad + total
    return found


def _guards(records: Sequence[_Record]) -> Iterator[InUse]:
    """Of all that a backward writes: the records, and the leaves behind them, once for each use."""
    for record in records:
        yield record.in_use
        for tensor in record.inputs:
            if tensor is not None and tensor._wants and tensor._record is None:
                yield tensor.in_use


def sum_in_order(arrays: list[Array]) -> Array:
    """((a0 + a1) + a2) + ..."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def _reachable(roots: Sequence[_Record]) -> list[_Record]:
    """All records behind these, newest first."""
    found = {id(root): root for root in roots}
    stack = list(found.values())
    while stack:
        for tensor in stack.pop().inputs:
            record = tensor._record if tensor is not None else None
            if record is not None and id(record) not in found:
                found[id(record)] = record
                stack.append(record)
    return sorted(found.values(), key=lambda record: record.order, reverse=True)


def _walk(record: _Record, leaves: dict[int, tuple[Tensor, list[tuple[int, Array]]]]) -> None:
    """Backward of one op: into the gradients of the results before it and the uses of leaves."""
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
                place = held if held is not None else np.empty(tensor.shape, np.float32)
                before.dout[tensor._output] = place
        into.append(place)
        accumulate.append(add)
        round_to_bf16.append(
            tensor is not None
            and tensor._rounded
            and tensor._readers == 1  # a sum over several is kept in fp32, as what is passed on and weights
            and index != record.call.passes_gradient()
            and not record.call.weight_like(index)
        )
    record.call.backward(list(record.dout), into, accumulate, round_to_bf16)


def call_op(op: str, inputs: Sequence[Tensor | Array | None], options: Options) -> Results:
    """Run an op now. Arrays in, arrays out; with a Tensor among the inputs, tensors out and a record kept."""
    make = lambda arrays, wants: _core.Call(  # noqa: E731
        op, options, arrays, wants, *scopes.in_force()
    )
    return _run(make, inputs)


def call_custom(
    forward: NumpyFunction, backward: NumpyFunction, inputs: Sequence[Tensor | Array | None]
) -> Results:
    """A pair of NumPy functions as an op (see mudd_core.custom)."""
    return _run(lambda arrays, wants: _core.Call.custom(forward, backward, arrays, wants), inputs)


def _run(
    make: Callable[[list[Array | None], list[bool]], _core.Call], inputs: Sequence[Tensor | Array | None]
) -> Results:
    tensors = [i if i is None or isinstance(i, Tensor) else Tensor(i) for i in inputs]
    wants = [t is not None and t._wants for t in tensors]
    call = make([None if t is None else t.data for t in tensors], wants)
    results: tuple[Array, ...] = call.forward()
    if not any(isinstance(i, Tensor) for i in inputs):
        return results[0] if len(results) == 1 else results
    record = _Record(call, tensors, len(results)) if any(wants) else None
    with _counting:
        for given in tensors:
            if given is not None:
                given._readers += 1
    rounded = call.rounded()
    out = []
    for index, array in enumerate(results):
        tensor = Tensor(array)
        tensor._record, tensor._output = record, index
        tensor._rounded = rounded[index]
        tensor._wants = record is not None and array.dtype != np.int32  # indices have no gradient
        out.append(tensor)
    return out[0] if len(out) == 1 else tuple(out)


def backward_of(
    op: str, inputs: Sequence[Array | None], gradients: Sequence[Array | None], options: Options
) -> tuple[Array | None, ...]:
    """Gradients of the float32 inputs of an op, recomputing its forward. None for absent and integer inputs."""
    wants = [i is not None and i.dtype == np.float32 for i in inputs]
    call = _core.Call(op, options, list(inputs), wants, *scopes.in_force())
    call.forward()
    into = [
        np.empty(i.shape, np.float32) if i is not None and i.dtype == np.float32 else None for i in inputs
    ]
    call.backward(list(gradients), into, [False] * len(inputs))
    return tuple(into)
