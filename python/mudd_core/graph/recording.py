"""The scopes in which a model function runs: one records a graph, the other runs at once on arrays.

Both have the same few methods. A model function gets its parameters from the current scope by name. Ops look at the
type of their inputs to choose between recording and running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias, Unpack

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.graph.differentiable import Differentiable
from mudd_core.graph.operators import Operators
from mudd_core.graph.parameters import Adapters, Declaration, adapter_of, require_declaration
from mudd_core.graph.tape import NumpyFunction, Options, Tensor


class Value(Operators):
    """A value of a graph that is being recorded: a shape and a dtype, without elements yet."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.recorder = recorder
        self.number = number
        self._is_weight = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return tuple(self.recorder.graph.shape(self.number))

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Dtype of the elements in arrays: bf16 values are float32 there."""
        name = self.recorder.graph.dtype(self.number)
        return np.dtype(np.float32 if name == "bfloat16" else name)

    @property
    def is_weight(self) -> bool:
        """True for a parameter, whose first axis is not the batch."""
        return self._is_weight

    def _fused(self, op: str, inputs: Sequence[Value], options: dict[str, str]) -> Value:
        return recorded(self.recorder.apply(op, inputs, dict(options)))

    def _function(
        self, function: Differentiable, inputs: Sequence[Value], whole: Sequence[bool] = ()
    ) -> Value:
        def gradients(dy: Array, *arrays: Array) -> tuple[Array, ...]:
            return tuple(function.gradient(index, dy, arrays) for index in range(len(arrays)))

        kept = list(whole) or [True] * len(inputs)
        return recorded(self.recorder.custom(lambda *arrays: function.value(arrays), gradients, inputs, kept))

    def __repr__(self) -> str:
        return f"Value({self.recorder.graph.dtype(self.number)}{list(self.shape)})"


# The inputs and results of ops: values of a graph, tensors of the tape, or arrays.
Like: TypeAlias = "Value | Tensor | Array"


class Scope(Protocol):
    """The methods that nn.py needs of the scope that a model function runs in."""

    def parameter(
        self, name: str, shape: Sequence[int], **declaration: Unpack[Declaration]
    ) -> Value | Tensor:
        """Return the parameter of this name as a value that ops accept."""

    def adapter(self, name: str, of_experts: bool = False) -> Adapters | None:
        """Return the adapter of the linear layer of this name, or of these experts, None if there is none."""

    def sow(self, name: str, value: Like) -> Like:
        """Record the value under this name if the scope captures it; return the value, or its replacement."""

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """If the scope captures this name, call `make` and record its result."""

    def on_path(self, name: str) -> bool:
        """Return True if the model must compute with this value, because it is patched or its gradient is captured."""


class Recorder:
    """Records a graph over the parameters of a store, and declares the parameters that the store does not have yet."""

    def __init__(
        self,
        store: _core.ParamStore,
        *,
        training: bool,
        samples: int,
        shards: int,
        stored: Mapping[str, str] | None = None,
        capture: Sequence[str] = (),
    ) -> None:
        """stored: the dtype of each parameter that is frozen and not stored in float32.

        capture: patterns of nn.sow names whose values are kept in `sown`.
        """
        self.store = store  # the graph uses the compute type of the store
        self.stored = stored or {}
        self.sown: dict[str, Value] = {}  # values by their nn.sow name
        self.linears: list[str] = []  # names of the linear layers so far
        self.stacks: list[str] = []  # names of the experts' weights that may have an adapter
        self.parameters: dict[int, str] = {}  # names of the parameters by the number of their value
        self._capture = capture
        self.graph = _core.Graph(
            training=training,
            samples=samples,
            shards=shards,
            compute=store.compute,
            expert_ranks=store.expert_ranks,
            expert_room=store.expert_room,
        )

    def input(self, name: str, shape: Sequence[int], dtype: str = "int32", external: bool = False) -> Value:
        """Return a value that is filled before every run (external: attached memory, such as a KV cache)."""
        return Value(self, self.graph.input(name, list(shape), dtype, external))

    def parameter(self, name: str, shape: Sequence[int], **declaration: Unpack[Declaration]) -> Value:
        """Return the parameter of this name, and declare it on first use."""
        if name in self.stored:
            declaration["stored"], declaration["trainable"] = self.stored[name], False
        require_declaration(name, declaration)
        self.store.declare(name, list(shape), **declaration)
        value = Value(self, self.graph.parameter(self.store, name))
        value._is_weight = True
        self.parameters[value.number] = name
        return value

    def adapter(self, name: str, of_experts: bool = False) -> Adapters | None:
        """Return the adapter of the linear layer of this name, or of these experts, None if there is none."""
        (self.stacks if of_experts else self.linears).append(name)
        return adapter_of(self.store, name)

    def sow(self, name: str, value: Like) -> Like:
        """Keep the value under this name if it is captured."""
        if self._captures(name):
            self.sown[name] = recorded(value)
        return value

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Record the ops that compute the value, and keep it, if it is captured."""
        if self._captures(name):
            self.sown[name] = recorded(make())

    def on_path(self, name: str) -> bool:
        """Return False: a graph never replaces a value."""
        return False

    def _captures(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._capture)

    def apply(self, op: str, inputs: Sequence[Value | None], options: Options) -> Value | tuple[Value, ...]:
        """Record one node; return its output or a tuple of them."""
        numbers = self.graph.apply(op, options, self._numbers(op, inputs), prefix())
        return self._values(numbers)

    def custom(
        self,
        forward: NumpyFunction,
        backward: NumpyFunction,
        inputs: Sequence[Value],
        whole: Sequence[bool] = (),
    ) -> Value | tuple[Value, ...]:
        """Record a pair of NumPy functions. whole: for each input True if every shard reads all of it."""
        numbers = self._numbers("custom", inputs)
        return self._values(self.graph.custom(forward, backward, numbers, prefix(), whole))

    def _numbers(self, op: str, inputs: Sequence[Value | None]) -> list[int]:
        for i, value in enumerate(inputs):
            if value is not None and not isinstance(value, Value):
                raise TypeError(
                    f"[{op}] input {i}: expected a value of the graph, got {type(value).__name__}"
                )
        return [-1 if value is None else value.number for value in inputs]

    def _values(self, numbers: list[int]) -> Value | tuple[Value, ...]:
        values = tuple(Value(self, number) for number in numbers)
        return values[0] if len(values) == 1 else values


class Immediate:
    """A scope that runs ops at once, with the parameters of a store as leaves of the tape."""

    def __init__(self, store: _core.ParamStore) -> None:
        self.store = store
        self.leaves: dict[str, Tensor] = {}

    def wants_gradient(self, trainable: bool) -> bool:
        """Return True if the tape collects the gradient of a parameter."""
        return trainable

    def parameter(self, name: str, shape: Sequence[int], **declaration: Unpack[Declaration]) -> Tensor:
        """Return the parameter of this name; every use returns the same leaf."""
        if name not in self.leaves:
            about = self.store.describe(name)
            weights = self.store.view(0, name) if about["stored"] == "float32" else self.store.values(name)
            self.leaves[name] = Tensor(weights, requires_grad=self.wants_gradient(about["trainable"]))
        return self.leaves[name]

    def adapter(self, name: str, of_experts: bool = False) -> Adapters | None:
        """Return the adapter of the linear layer of this name, or of these experts, None if there is none."""
        return adapter_of(self.store, name)

    def sow(self, name: str, value: Like) -> Like:
        """Return the value unchanged; Watcher overrides this."""
        return value

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Record nothing."""

    def on_path(self, name: str) -> bool:
        """Return False: nothing is replaced."""
        return False


def recorded(value: Like | tuple[Value, ...]) -> Value:
    """Narrow to a value of a graph. Raise TypeError for a tensor of the tape or an array."""
    if not isinstance(value, Value):
        raise TypeError(f"[graph] value: expected a value of the graph, got {type(value).__name__}")
    return value


def taped(value: Like) -> Tensor:
    """Narrow to a tensor of the tape. Raise TypeError for a value of a graph or an array."""
    if not isinstance(value, Tensor):
        raise TypeError(f"[tape] value: expected a tensor, got {type(value).__name__}")
    return value


_scope: ContextVar[Scope | None] = ContextVar("scope", default=None)
_prefix: ContextVar[str] = ContextVar("prefix", default="")


def current() -> Scope:
    """Return the scope that the model function runs in."""
    scope = _scope.get()
    if scope is None:
        raise RuntimeError("[nn] parameters exist only inside a model: call it through mudd_core.Model")
    return scope


def prefix() -> str:
    """Return the dotted name of the part of the model that is being recorded."""
    return _prefix.get()


@contextmanager
def running(scope: Scope) -> Iterator[None]:
    """Run model functions in this scope inside the `with` block."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Name parameters and nodes `<outer>.<name>` inside the `with` block; an empty name changes nothing."""
    token = _prefix.set(".".join(filter(None, (_prefix.get(), name))))
    try:
        yield
    finally:
        _prefix.reset(token)
