"""Types of the functions of mudd_core.ops, from the declarations of the ops."""

from __future__ import annotations

import inspect
import textwrap

from mudd_core import ops
from mudd_core._core import OpInput, OpOutput, OpSpec, op_specs
from mudd_core.ops.call import repeated_name

HEAD = '''"""Types of the ops; written by tests/stubs.py."""

# A checker takes the first overload that fits, so that arrays alone give arrays although they fit the second too.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

from mudd_core.base.types import Array, Float32, Float64, Int32
from mudd_core.graph.recording import Like as Like
from mudd_core.graph.tape import Tensor

T = TypeVar("T", bound=Like)
Given = Array | Tensor
'''
# Results follow the inputs: arrays for arrays, tensors if one input is a tensor, and values inside a model function.
KINDS = ("Array", "Given", "T")
RESULTS = {"Given": "Tensor", "T": "T", "Like": "Like"}
OF_ARRAYS = {"float32": "Float32", "float64": "Float64", "int32": "Int32"}


def of_input(one: OpInput, array: str) -> str:
    """Return `x: T`; indices may have another type than the other inputs."""
    kind = "Like" if one.index and array == "T" else array
    return (
        f"{one.name}: {kind.removesuffix(' | None')} | None = None" if one.optional else f"{one.name}: {kind}"
    )


def parameters(spec: OpSpec, inputs: list[OpInput], array: str) -> str:
    """Return all parameters, in the order of inspect.signature."""
    made = [of_input(one, array) for one in inputs]
    some = " | None" if any(one.optional for one in spec.repeated) and "None" not in array else ""
    made.append(f"*{repeated_name(spec.repeated)}: {array}{some}" if spec.repeated else "*")
    for option in spec.options:
        made.append(f"{option.name}: {type(option.default).__name__} = {option.default!r}")
    return ", ".join(made if spec.options or spec.repeated else made[:-1])


def result(outputs: list[OpOutput], array: str) -> str:
    """Return the result type: one value, a tuple, or either if inputs repeat."""
    of = [RESULTS.get(array.removesuffix(" | None"), OF_ARRAYS[one.dtype]) for one in outputs]
    if outputs[0].repeated:
        return f"{of[0]} | tuple[{of[0]}, ...]"
    return of[0] if len(of) == 1 else f"tuple[{', '.join(of)}]"


def gradients(spec: OpSpec, inputs: list[OpInput]) -> str:
    """Return the type of the tuple that a backward returns."""
    if spec.repeated:
        return "tuple[Float32 | None, ...]"
    of = ["None" if i.index else "Float32 | None" if i.optional else "Float32" for i in inputs]
    return f"tuple[{', '.join(of)}]"


def function(name: str, arguments: str, returned: str) -> str:
    """Return a definition with the docstring of the function."""
    text = textwrap.indent(inspect.getdoc(getattr(ops, name)) or "", "    ").strip()
    return f'def {name}({arguments}) -> {returned}:\n    """{text}"""\n'


def overloads(name: str, signatures: list[tuple[str, str]]) -> str:
    """Return a definition for each (arguments, result); the first one has the docstring."""
    first, *others = signatures
    made = [f"@overload\n{function(name, *first)}"]
    made += [f"@overload\ndef {name}({taken}) -> {returned}: ...\n" for taken, returned in others]
    return "".join(made)


def custom() -> str:
    """Return mudd_core.custom for functions that return one array, then for functions that return several."""
    backward = "backward: Callable[..., Array | Sequence[Array | None]]"
    made = []
    for forward, form in (("Array", "{}"), ("tuple[Array, ...]", "tuple[{}, ...]")):
        taken = f"forward: Callable[..., {forward}], {backward}"
        made += [(f"{taken}, *inputs: {k}", form.format(RESULTS.get(k, "Float32"))) for k in KINDS]
    return overloads("custom", made)


def generate() -> str:
    """Return the text of ops/__init__.pyi."""
    parts = [HEAD, f"__all__: list[str] = {ops.__all__!r}\n", custom()]
    for spec in op_specs():
        last = "Like | None" if spec.outputs[0].repeated else KINDS[-1]
        signatures = [
            (parameters(spec, spec.inputs, kind), result(spec.outputs, kind)) for kind in (*KINDS[:-1], last)
        ]
        parts.append(overloads(spec.name, signatures))
        inputs = [one for one in spec.inputs if not one.state]
        of = "Given | None" if spec.outputs[0].loss else "Given"
        several = (
            f"{of} | tuple[Given | None, ...]" if len(spec.outputs) > 1 or spec.outputs[0].repeated else of
        )
        arguments = f"d{spec.outputs[0].name}: {several}, {parameters(spec, inputs, 'Given')}"
        parts.append(function(f"{spec.name}_backward", arguments, gradients(spec, inputs)))
    return "\n".join(parts)
