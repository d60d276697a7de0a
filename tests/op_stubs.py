"""Types of the functions of mudd_core.ops, from the declarations of the ops."""

from __future__ import annotations

import inspect
import textwrap

from mudd_core import ops
from mudd_core._core import OpInput, OpOutput, OpSpec, op_specs
from mudd_core.ops.faces import repeated_name

HEAD = '''"""Types of the ops; written by tests/stubs.py."""

from typing import Any, TypeVar

from mudd_core.base.types import Array
from mudd_core.graph.recording import Like as Like
from mudd_core.graph.tape import Tensor
from mudd_core.ops.call import custom as custom

T = TypeVar("T", bound=Like)
Given = Array | Tensor
'''


def of_input(one: OpInput, array: str) -> str:
    """`x: T`; indices need not be of the type of the other inputs."""
    kind = "Like" if one.index and array == "T" else array
    if not one.optional:
        return f"{one.name}: {kind}"
    return f"{one.name}: {kind.removesuffix(' | None')} | None = None"


def parameters(spec: OpSpec, inputs: list[OpInput], array: str) -> str:
    """All parameters, in the order of inspect.signature."""
    made = [of_input(one, array) for one in inputs]
    some = " | None" if any(one.optional for one in spec.repeated) and "None" not in array else ""
    made.append(f"*{repeated_name(spec.repeated)}: {array}{some}" if spec.repeated else "*")
    for option in spec.options:
        made.append(f"{option.name}: {type(option.default).__name__} = {option.default!r}")
    return ", ".join(made if spec.options or spec.repeated else made[:-1])


def result(outputs: list[OpOutput]) -> str:
    """One value, a tuple, or (where inputs repeat) either."""
    if outputs[0].repeated:
        return "Any"
    return "T" if len(outputs) == 1 else f"tuple[{', '.join('T' for _ in outputs)}]"


def gradients(spec: OpSpec, inputs: list[OpInput]) -> str:
    """The tuple that a backward returns."""
    if spec.repeated:
        return "tuple[Any, ...]"
    of = ["None" if i.index else "Array | None" if i.optional else "Array" for i in inputs]
    return f"tuple[{', '.join(of)}]"


def function(name: str, arguments: str, returned: str) -> str:
    """A definition with the docstring of the function."""
    text = textwrap.indent(inspect.getdoc(getattr(ops, name)) or "", "    ").strip()
    return f'def {name}({arguments}) -> {returned}:\n    """{text}"""\n'


def generate() -> str:
    """The text of ops/__init__.pyi."""
    parts = [HEAD, f"__all__: list[str] = {ops.__all__!r}\n"]
    for spec in op_specs():
        returned = result(spec.outputs)
        taken = parameters(spec, spec.inputs, "Like | None" if returned == "Any" else "T")
        parts.append(function(spec.name, taken, returned))
        inputs = [one for one in spec.inputs if not one.state]
        of = "Given | None" if spec.outputs[0].loss else "Given"
        several = (
            f"{of} | tuple[Given | None, ...]" if len(spec.outputs) > 1 or spec.outputs[0].repeated else of
        )
        arguments = f"d{spec.outputs[0].name}: {several}, {parameters(spec, inputs, 'Given')}"
        parts.append(function(f"{spec.name}_backward", arguments, gradients(spec, inputs)))
    return "\n".join(parts)
