"""Ops on arrays, tensors of the tape or values of a graph: the functions `<op>` and `<op>_backward`.

Each function is built from the declaration of its op: it checks the arguments and calls the executor of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mudd_core._core import op_specs
from mudd_core.base.types import Array
from mudd_core.graph import tape
from mudd_core.graph.constants import as_input
from mudd_core.graph.recording import Like, Value
from mudd_core.graph.tape import Tensor

if TYPE_CHECKING:
    from mudd_core._core import OpInput, OpSpec, Option

OptionValue = bool | int | float | str
Gradient: TypeAlias = "Array | Tensor | None"


class Op:
    """The declaration of an op in the core, with lookups that calls need."""

    def __init__(self, spec: OpSpec) -> None:
        self.name = spec.name
        self.inputs = spec.inputs
        self.repeated = spec.repeated
        self.outputs = spec.outputs
        self.options = spec.options
        self.option_names = {option.name for option in self.options}

    def labels(self) -> Iterator[OpInput]:
        """Yield the inputs in order; repeated inputs are yielded without end."""
        yield from self.inputs
        while self.repeated:
            yield from self.repeated

    def bind(
        self, given: tuple[Like | None, ...], named: dict[str, Any], inputs: Sequence[OpInput]
    ) -> list[Any]:
        """Return all inputs in order, from positional and named arguments; the options stay in `named`."""
        if len(given) > len(inputs) and not self.repeated:
            raise TypeError(f"[{self.name}] expected at most {len(inputs)} inputs, got {len(given)}")
        bound = list(given)
        for one in inputs[len(given) :]:
            if one.name not in named and not one.optional:
                raise TypeError(f"[{self.name}] {one.name}: expected an array, got nothing")
            bound.append(named.pop(one.name, None))
        for name in named:
            if name not in self.option_names:
                known = ", ".join(sorted(self.option_names))
                raise TypeError(f"[{self.name}] unexpected argument '{name}'; options: {known}")
        return bound

    def checked(self, inputs: Sequence[Like | None]) -> list[Array | Tensor | None]:
        """Return the inputs as arrays or tensors of the tape. Raise TypeError with op and argument for a wrong one."""
        return [
            None
            if value is None and one.optional
            else checked(self.name, one.name, value, "int32" if one.index else "float32")
            for one, value in zip(self.labels(), inputs, strict=False)
        ]


def checked(op: str, name: str, value: Any, dtype: str) -> Array | Tensor:
    """Return a tensor of the tape as it is, anything else as an array. Raise TypeError for another dtype."""
    if value is None:
        raise TypeError(f"[{op}] {name}: expected an array, got None")
    plain = np.asarray if dtype == "float64" else as_input
    array = value if isinstance(value, Tensor) else plain(value)
    if array.dtype != dtype:
        hint = f"; pass {name}.astype(np.{dtype})" if array.dtype.kind in "fiu" else ""
        raise TypeError(f"[{op}] {name}: expected {dtype}, got {array.dtype}{hint}")
    return array


def apply(op: Op, inputs: Sequence[Like | None], options: dict[str, OptionValue]) -> Any:
    """Record the op if an input belongs to a graph, else run it at once (on the tape, if an input is a tensor)."""
    recorders = [i.recorder for i in inputs if isinstance(i, Value)]
    given: list[Any] = list(inputs) if recorders else op.checked(inputs)
    while given and given[-1] is None:
        given.pop()
    if recorders:
        return recorders[0].apply(op.name, given, options)
    return tape.call_op(op.name, given, options)


def backward(
    op: Op,
    gradient: Gradient | Sequence[Gradient],
    inputs: Sequence[Array | Tensor | None],
    options: dict[str, OptionValue],
) -> tuple[Array | None, ...]:
    """Return the gradients of the inputs from the outputs' gradients (one array or a tuple), after a fresh forward."""
    arrays = [i.data if isinstance(i, Tensor) else i for i in op.checked(inputs)]
    gradients: tuple[Array | None, ...] = tape.backward_of(
        op.name, arrays, gradients_of(op, gradient), options
    )
    return gradients


def gradients_of(op: Op, gradient: Gradient | Sequence[Gradient]) -> list[Array | None]:
    """Return one gradient per output, None for unused outputs; a loss's gradient may be omitted (ones)."""
    several = gradient if isinstance(gradient, tuple | list) else (gradient,)
    first = op.outputs[0]
    if not first.loss and all(g is None for g in several):
        raise TypeError(f"[{op.name}] d{first.name}: expected an array, got None")
    gradients: list[Array | None] = []
    for index, given in enumerate(several):
        output = op.outputs[min(index, len(op.outputs) - 1)]
        if given is not None and not output.has_gradient:
            raise TypeError(f"[{op.name}] d{output.name}: expected None, {output.name} has no gradient")
        one = None if given is None else checked(op.name, f"d{output.name}", given, output.dtype)
        gradients.append(one.data if isinstance(one, Tensor) else one)
    return gradients + [None] * (len(op.outputs) - len(gradients))


def custom(forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Any) -> Any:
    """Run two NumPy functions as an op, in either executor.

    forward(*inputs) returns one float32 array or a tuple. backward(*output_gradients, *inputs) returns one gradient per
    input, None for an input without one. Output shapes are inferred from one call on zeros.
    """
    recorders = [i.recorder for i in inputs if isinstance(i, Value)]
    if recorders:
        return recorders[0].custom(forward, backward, list(inputs))
    return tape.call_custom(forward, backward, list(inputs))


Function = Callable[..., Any]


def functions() -> dict[str, Function]:
    """Return the functions of all ops by name."""
    made: dict[str, Function] = {}
    for spec in op_specs():
        op = Op(spec)
        made[op.name] = _forward(op, f"{spec.help}\n{option_text(op.options)}".strip())
        made[f"{op.name}_backward"] = _backward(op, f"{gradient_text(op)}\n\n{spec.backward_help}".strip())
    return made


def _forward(op: Op, text: str) -> Function:
    def call(*inputs: Any, **options: Any) -> Any:
        return apply(op, op.bind(inputs, options, op.inputs), options)

    return _described(call, op.name, text, _parameters(op, op.inputs))


def _backward(op: Op, text: str) -> Function:
    inputs = [one for one in op.inputs if not one.state]
    gradient = f"d{op.outputs[0].name}"

    def call(*given: Any, **options: Any) -> Any:
        if gradient in options:
            given = (options.pop(gradient), *given)
        if not given:
            raise TypeError(f"[{op.name}] {gradient}: expected an array, got nothing")
        return backward(op, given[0], op.bind(given[1:], options, inputs), options)

    first = Parameter(gradient, Parameter.POSITIONAL_OR_KEYWORD)
    return _described(call, f"{op.name}_backward", text, [first, *_parameters(op, inputs)])


def _described(call: Function, name: str, text: str, parameters: Sequence[Parameter]) -> Function:
    call.__name__ = call.__qualname__ = name
    call.__module__ = "mudd_core.ops"
    call.__doc__ = text
    vars(call)["__signature__"] = Signature(parameters)
    return call


def repeated_name(repeated: Sequence[OpInput]) -> str:
    """Return the argument name of repeated inputs, as in `*states`; "more" if several inputs repeat together."""
    return repeated[0].name if len(repeated) == 1 else "more"


def _parameters(op: Op, inputs: Sequence[OpInput]) -> list[Parameter]:
    """Return the parameters of a signature: inputs, repeated inputs, then options by name."""
    made = [
        Parameter(
            one.name, Parameter.POSITIONAL_OR_KEYWORD, default=None if one.optional else Parameter.empty
        )
        for one in inputs
    ]
    if op.repeated:
        made.append(Parameter(repeated_name(op.repeated), Parameter.VAR_POSITIONAL))
    for option in op.options:
        kind = type(option.default)
        made.append(Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=kind))
    return made


def option_text(options: Sequence[Option]) -> str:
    """Return one line for each option: its meaning and its values."""
    lines = []
    for option in options:
        values = ", ".join(option.choices) if option.choices else option.expected
        plain = isinstance(option.default, bool) or (isinstance(option.default, str) and not option.choices)
        lines.append(f"    {option.name}: {option.help}." + ("" if plain else f" Values: {values}."))
    return "\n".join(["", "Options:", *lines, ""]) if lines else ""


def gradient_text(op: Op) -> str:
    """Return the first line of the help of a backward, which lists the gradients."""
    names = ["None" if one.index else f"d{one.name}" for one in op.inputs if not one.state]
    more = [f"one for each of {repeated_name(op.repeated)}"] if op.repeated else []
    listed = ", ".join([*names, *more])
    return f"Gradients ({listed}{',' if len(names) == 1 and not more else ''}) of {op.name}; None for absent inputs."
