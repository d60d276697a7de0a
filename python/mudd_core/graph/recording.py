"""Where a model function runs: recording a graph, or at once on arrays. Both offer the same few calls.

A model function asks the current scope for parameters by name; ops look at their inputs to know what to do.
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
    """A value of a graph that is being recorded: a shape and a dtype, no numbers yet."""

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
        """Type of the elements as arrays hold them: bf16 values are float32 there."""
        name = self.recorder.graph.dtype(self.number)
        return np.dtype(np.float32 if name == "bfloat16" else name)

    @property
    def is_weight(self) -> bool:
        """Whether it is a parameter, which has no samples."""
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


# What ops take and give: of a graph, of the tape, or an array.
Like: TypeAlias = "Value | Tensor | Array"


class Scope(Protocol):
    """What nn.py needs of the place a model function runs in."""

    def parameter(
        self, name: str, shape: Sequence[int], **declaration: Unpack[Declaration]
    ) -> Value | Tensor:
        """The parameter of this name as a value that ops take."""

    def adapter(self, name: str) -> Adapters | None:
        """How the linear layer of this name is adapted; None where it is not."""

    def sow(self, name: str, value: Like) -> Like:
        """Record the value under this name if the scope captures it; return it, or the one that replaces it."""

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Call `make` and record what it returns, if the scope captures this name."""

    def on_path(self, name: str) -> bool:
        """Whether the model must compute with this value: it is replaced, or its gradient is captured."""


class Recorder:
    """Records a graph over the parameters of a store; declares those that the store does not have yet."""

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
        """stored: the type of each parameter that is declared frozen and not in float32.

        capture: patterns of the names of nn.sow that go into `sown`.
        """
        self.store = store  # its compute type is the graph's
        self.stored = stored or {}
        self.sown: dict[str, Value] = {}  # of nn.sow, by name
        self.linears: list[str] = []  # names of the linear layers so far
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
        """A value that is filled before every run (external: attached memory, such as a KV cache)."""
        return Value(self, self.graph.input(name, list(shape), dtype, external))

    def parameter(self, name: str, shape: Sequence[int], **declaration: Unpack[Declaration]) -> Value:
        """The parameter of this name, declared on first sight."""
        if name in self.stored:
            declaration["stored"], declaration["trainable"] = self.stored[name], False
        require_declaration(name, declaration)
        self.store.declare(name, list(shape), **declaration)
        value = Value(self, self.graph.parameter(self.store, name))
        value._is_weight = True
        return value

    def adapter(self, name: str) -> Adapters | None:
        """How the linear layer of this name is adapted; None where it is not."""
        self.linears.append(name)
        return adapter_of(self.store, name)

    def sow(self, name: str, value: Like) -> Like:
        """Keep the value under this name if it is captured."""
        if self._captures(name):
            self.sown[name] = recorded(value)
        return value

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Record what makes the value, and keep it, if it is captured."""
        if self._captures(name):
            self.sown[name] = recorded(make())

    def on_path(self, name: str) -> bool:
        """Return False: a graph reads values, it replaces none."""
        return False

    def _captures(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._capture)

    def apply(self, op: str, inputs: Sequence[Value | None], options: Options) -> Value | tuple[Value, ...]:
        """Records one node; returns its output or a tuple of them."""
        numbers = self.graph.apply(op, options, self._numbers(op, inputs), prefix())
        return self._values(numbers)

    def custom(
        self,
        forward: NumpyFunction,
        backward: NumpyFunction,
        inputs: Sequence[Value],
        whole: Sequence[bool] = (),
    ) -> Value | tuple[Value, ...]:
        """Records a pair of NumPy functions. whole: for each input whether no shard takes a part of it."""
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
    """Parameters of a store as leaves of the tape."""

    def __init__(self, store: _core.ParamStore) -> None:
        self.store = store
        self.leaves: dict[str, Tensor] = {}

    def wants_gradient(self, trainable: bool) -> bool:
        """Whether the tape collects the gradient of a parameter."""
        return trainable

    def parameter(self, name: str, shape: Sequence[int], **declaration: Unpack[Declaration]) -> Tensor:
        """The parameter of this name; one leaf however often it is used."""
        if name not in self.leaves:
            about = self.store.describe(name)
            weights = self.store.view(0, name) if about["stored"] == "float32" else self.store.values(name)
            self.leaves[name] = Tensor(weights, requires_grad=self.wants_gradient(about["trainable"]))
        return self.leaves[name]

    def adapter(self, name: str) -> Adapters | None:
        """How the linear layer of this name is adapted; None where it is not."""
        return adapter_of(self.store, name)

    def sow(self, name: str, value: Like) -> Like:
        """Return the value; Watcher records it."""
        return value

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Record nothing."""

    def on_path(self, name: str) -> bool:
        """Return False: nothing is replaced."""
        return False


def recorded(value: Like | tuple[Value, ...]) -> Value:
    """Narrow to the value of a graph; TypeError for one of the tape or an array."""
    if not isinstance(value, Value):
        raise TypeError(f"[graph] value: expected a value of the graph, got {type(value).__name__}")
    return value


def taped(value: Like) -> Tensor:
    """Narrow to the tensor of the tape; TypeError for a value of a graph or an array."""
    if not isinstance(value, Tensor):
        raise TypeError(f"[tape] value: expected a tensor, got {type(value).__name__}")
    return value


_scope: ContextVar[Scope | None] = ContextVar("scope", default=None)
_prefix: ContextVar[str] = ContextVar("prefix", default="")


def current() -> Scope:
    """The scope that the model function runs in."""
    scope = _scope.get()
    if scope is None:
        raise RuntimeError("[nn] parameters exist only inside a model: call it through mudd_core.Model")
    return scope


def prefix() -> str:
    """Dotted name of the part of the model that is being recorded."""
    return _prefix.get()


@contextmanager
def running(scope: Scope) -> Iterator[None]:
    """Inside: model functions run in this scope."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Inside: parameters and nodes are named `<outer>.<name>`; an empty name changes nothing."""
    token = _prefix.set(".".join(filter(None, (_prefix.get(), name))))
    try:
        yield
    finally:
        _prefix.reset(token)
