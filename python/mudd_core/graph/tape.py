"""The immediate executor: ops on NumPy arrays run at once, and a tape walks back through them.

`Tensor` wraps an array. Ops on tensors are recorded; `loss.backward()` sets `.grad` of the leaves that were created
with `requires_grad=True`. A tensor supports NumPy's operators, sums, shapes and indices (graph/operators.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Never, TypeAlias

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.arguments.known import Hinted
from mudd_core.base.in_use import InUse
from mudd_core.base.other_names import TENSOR
from mudd_core.base.types import Array, Float32
from mudd_core.graph import scopes
from mudd_core.graph.constants import as_array, as_input
from mudd_core.graph.differentiable import Differentiable
from mudd_core.graph.numpy_functions import Comparisons
from mudd_core.graph.operators import Operators
from mudd_core.graph.records import FunctionCall, Record, walk_back

# The options of an op by name, as its C++ part reads them.
Options: TypeAlias = "dict[str, bool | int | float | str]"
# A function of a custom op: arrays to the outputs, or to the gradients of the inputs.
NumpyFunction: TypeAlias = "Callable[..., Array | Sequence[Array | None]]"
Results: TypeAlias = "Tensor | Array | tuple[Tensor | Array, ...]"

_counting = threading.Lock()  # guards the count of readers of a tensor


class Tensor(Comparisons, Operators, Hinted):
    """A NumPy array on the tape, with NumPy's operators, sum, mean, reshape, transpose, .T and indexing.

    data: float32 (or int32 for indices), never copied; float64 is converted. requires_grad: collect the gradient of
    this tensor in `.grad`. np.asarray(t) is a read-only view of the elements; comparisons return NumPy's booleans.
    """

    _other_names = TENSOR

    def __init__(self, data: npt.ArrayLike, requires_grad: bool = False) -> None:
        self._hold(as_array(data), requires_grad)
        if self.data.dtype.kind not in "fiub":
            kind = type(data).__name__ if self.data.dtype.kind == "O" else self.data.dtype
            raise TypeError(f"[Tensor] data: expected numbers, got {kind}; type mc.Tensor([1.0, 2.0])")
        if requires_grad and self.data.dtype != np.float32:
            raise TypeError(
                f"[Tensor] data: expected float32 with requires_grad=True, got {self.data.dtype}; "
                "pass x.astype(np.float32)"
            )

    def _hold(self, array: Array, requires_grad: bool) -> None:
        self.data: Array = array
        self.requires_grad = requires_grad
        self.grad: Float32 | None = None
        self._record: Record | None = None
        self._output = 0
        self._wants = requires_grad
        self._rounded = False  # True if a graph would store it in bf16
        self._readers = 0
        self.in_use = InUse("backward")  # held while a backward adds to its gradient

    @classmethod
    def _result(cls, array: Array, record: Record | None, output: int = 0, rounded: bool = False) -> Tensor:
        """Return a tensor for the output of an op, of any dtype."""
        tensor = cls.__new__(cls)
        tensor._hold(array, False)
        tensor._record, tensor._output, tensor._rounded = record, output, rounded
        tensor._wants = record is not None and array.dtype.kind == "f"  # indices have no gradient
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Dtype of the elements."""
        return self.data.dtype

    def numpy(self) -> Array:
        """Return the array itself, without a copy."""
        return self.data

    def item(self) -> float:
        """Return the value of a tensor of one element. Raise ValueError for any other size."""
        if self.data.size != 1:
            raise ValueError(
                f"[item] expected one number, got shape {self.shape}; type t.sum().item() or np.asarray(t)"
            )
        number: float = self.data.item()
        return number

    @property
    def recorded(self) -> bool:
        """True if backward can start here: a result of ops on tensors that require gradients."""
        return self._record is not None

    def __repr__(self) -> str:
        numbers = np.array2string(self.data, separator=", ", prefix="Tensor(", threshold=100)
        kind = "" if self.dtype == np.float32 else f", dtype={self.dtype}"
        wants = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({numbers}, shape={self.shape}{kind}{wants})"

    def __format__(self, how: str) -> str:
        return format(self.item(), how) if how else str(self)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    @property
    def wants_gradient(self) -> bool:
        """True if backward() reaches this tensor: a leaf with requires_grad, or a result that depends on one."""
        return self._wants

    if not TYPE_CHECKING:  # hidden, because a checker would type `array + tensor` as an array

        def __array__(self, dtype=None, copy=None):
            if copy or (dtype is not None and self.dtype != dtype):
                if copy is False:
                    raise ValueError(
                        f"[Tensor] dtype: expected {self.dtype} without a copy, got {dtype}; pass copy=None"
                    )
                return np.array(self.data, dtype)
            view = self.data.view()
            view.flags.writeable = False
            return view

    # ---- gradients ------------------------------------------------------------------------------------------

    def backward(self, gradient: npt.ArrayLike | None = None, **unknown: Never) -> None:
        """Walk the tape back from this tensor. gradient: its gradient; optional for a single element."""
        if unknown:
            raise TypeError(
                f"[backward] unexpected argument '{next(iter(unknown))}'; type loss.backward(): "
                "the tape lives as long as its results"
            )
        if self._record is None:
            raise ValueError(
                "[backward] this tensor is not the result of an op on tensors that require "
                "gradients; create the leaf with mc.Tensor(x, requires_grad=True)"
            )
        if gradient is None and self.size != 1:
            raise ValueError(
                f"[backward] gradient: expected one for a tensor of shape {self.shape}; type t.sum().backward(), "
                "or pass the gradient of t"
            )
        seed = np.ones(self.shape, self.dtype) if gradient is None else np.array(gradient, self.dtype)
        if seed.shape != self.shape:
            raise ValueError(f"[backward] gradient: expected shape {self.shape}, got {seed.shape}")
        walk_back([(self, seed)])

    # ---- how the operators run ------------------------------------------------------------------------------

    def _fused(self, op: str, inputs: Sequence[Tensor], options: dict[str, str]) -> Tensor:
        made = call_op(op, inputs, dict(options))
        assert isinstance(made, Tensor)
        return made

    @property
    def is_weight(self) -> bool:
        """True for a leaf with a gradient."""
        return self._wants and self._record is None

    def _function(
        self, function: Differentiable, inputs: Sequence[Tensor], whole: Sequence[bool] = ()
    ) -> Tensor:
        arrays = [one.data for one in inputs]
        cuts = scopes.in_force()[0]
        if whole and len(cuts) > 2 and all(one.dtype == np.float32 for one in arrays):
            return self._by_shards(function, inputs, whole, cuts)
        value = function.value(arrays)
        record = None
        if any(one._wants for one in inputs):
            record = Record(FunctionCall(function, arrays), inputs, 1)
        _count_readers(inputs)
        return Tensor._result(value, record)

    @staticmethod
    def _by_shards(
        function: Differentiable, inputs: Sequence[Tensor], whole: Sequence[bool], cuts: Sequence[int]
    ) -> Tensor:
        """Run the function as a node of the core, which calls it for each shard and sums gradients by the tree."""

        def gradients(dy: Array, *arrays: Array) -> tuple[Array, ...]:
            return tuple(function.gradient(index, dy, arrays) for index in range(len(arrays)))

        made = _run(
            lambda arrays, wants: _core.Call.custom(
                lambda *given: function.value(given), gradients, arrays, wants, whole, cuts
            ),
            inputs,
        )
        assert isinstance(made, Tensor)
        return made


def _count_readers(inputs: Sequence[Tensor | None]) -> None:
    with _counting:
        for given in inputs:
            if given is not None:
                given._readers += 1


def backward(*losses: Tensor, watched: Sequence[Tensor] = ()) -> list[Array | None]:
    """Walk the tape back from several losses at once, like the planned executor, for the gradient of their sum.

    Return the gradients of the watched results, None for a result that no loss depends on.
    """
    for loss in losses:
        if loss._record is None:
            raise ValueError("[backward] losses: expected results of ops on tensors that require gradients")
    return walk_back([(loss, np.ones(loss.shape, loss.dtype)) for loss in losses], watched)


def call_op(op: str, inputs: Sequence[Tensor | Array | None], options: Options) -> Results:
    """Run an op now. The results are arrays; if any input is a Tensor, they are tensors and the op is recorded."""
    make = lambda arrays, wants: _core.Call(  # noqa: E731
        op, options, arrays, wants, *scopes.in_force()
    )
    return _run(make, inputs)


def call_custom(
    forward: NumpyFunction, backward: NumpyFunction, inputs: Sequence[Tensor | Array | None]
) -> Results:
    """Run a pair of NumPy functions as an op (see mudd_core.custom)."""
    whole = [isinstance(one, Tensor) and one.is_weight for one in inputs]
    cuts = scopes.in_force()[0]
    return _run(
        lambda arrays, wants: _core.Call.custom(forward, backward, arrays, wants, whole, cuts), inputs
    )


def _run(
    make: Callable[[list[Array | None], list[bool]], _core.Call], inputs: Sequence[Tensor | Array | None]
) -> Results:
    tensors = [i if i is None or isinstance(i, Tensor) else Tensor._result(as_input(i), None) for i in inputs]
    wants = [t is not None and t._wants for t in tensors]
    call = make([None if t is None else t.data for t in tensors], wants)
    results: tuple[Array, ...] = call.forward()
    if not any(isinstance(i, Tensor) for i in inputs):
        return results[0] if len(results) == 1 else results
    record = Record(call, tensors, len(results)) if any(wants) else None
    _count_readers(tensors)
    rounded = call.rounded()
    out = [Tensor._result(array, record, index, rounded[index]) for index, array in enumerate(results)]
    return out[0] if len(out) == 1 else tuple(out)


def backward_of(
    op: str, inputs: Sequence[Array | None], gradients: Sequence[Array | None], options: Options
) -> tuple[Array | None, ...]:
    """Return the gradients of the float32 inputs of an op after a fresh forward; None for absent and integer inputs."""
    wants = [i is not None and i.dtype == np.float32 for i in inputs]
    call = _core.Call(op, options, list(inputs), wants, *scopes.in_force())
    call.forward()
    into = [
        np.empty(i.shape, np.float32) if i is not None and i.dtype == np.float32 else None for i in inputs
    ]
    call.backward(list(gradients), into, [False] * len(inputs))
    return tuple(into)
