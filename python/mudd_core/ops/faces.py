"""The functions `<op>` and `<op>_backward`, made from the declaration of each op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from mudd_core._core import op_specs
from mudd_core.ops.call import Op, apply, backward

if TYPE_CHECKING:
    from mudd_core._core import OpInput, Option

Function = Callable[..., Any]


def functions() -> dict[str, Function]:
    """The functions of all ops by name."""
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
    """The name of the inputs that may repeat, where they are one argument: `*states`."""
    return repeated[0].name if len(repeated) == 1 else "more"


def _parameters(op: Op, inputs: Sequence[OpInput]) -> list[Parameter]:
    """Inputs, then those that may repeat, then options by name."""
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
    """One line for each option: its meaning and its values."""
    lines = []
    for option in options:
        values = ", ".join(option.choices) if option.choices else option.expected
        plain = isinstance(option.default, bool) or (isinstance(option.default, str) and not option.choices)
        lines.append(f"    {option.name}: {option.help}." + ("" if plain else f" Values: {values}."))
    return "\n".join(["", "Options:", *lines, ""]) if lines else ""


def gradient_text(op: Op) -> str:
    """The first line of help of a backward: what it returns."""
    names = ["None" if one.index else f"d{one.name}" for one in op.inputs if not one.state]
    more = [f"those of each {repeated_name(op.repeated)}"] if op.repeated else []
    listed = ", ".join([*names, *more])
    return f"Gradients ({listed}{',' if len(names) == 1 and not more else ''}) of {op.name}; None for absent inputs."
