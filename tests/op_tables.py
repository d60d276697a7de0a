"""The sections of docs/ops.md, one for each op, from the declarations of the core (./run docs).

They are between the lines `<!-- ops -->` and `<!-- end of the ops -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from mudd_core._core import OpInput, OpOutput, OpSpec, Option, op_specs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
_PART = re.compile(r"<!-- ops -->\n.*?<!-- end of the ops -->", re.DOTALL)


def section(spec: OpSpec) -> str:
    """Return formula, inputs, outputs and options of an op in Markdown."""
    text = spec.help + (f"\n\nBackward: {spec.backward_help}" if spec.backward_help else "")
    lines = [f"## {spec.name}", "", "```text", text, "```", "", "| input | dtype | |", "| --- | --- | --- |"]
    lines += [_input(one, "") for one in spec.inputs]
    lines += [_input(one, "any number of times") for one in spec.repeated]
    lines += ["", "| output | dtype | |", "| --- | --- | --- |", *map(_output, spec.outputs)]
    if spec.options:
        lines += ["", "| option | type | default | values | meaning |", "| --- | --- | --- | --- | --- |"]
        lines += map(_option, spec.options)
    return "\n".join(lines)


def _input(one: OpInput, times: str) -> str:
    notes = [times, "optional" if one.optional else "", "written by forward" if one.state else ""]
    return _row(f"`{one.name}`", "int32" if one.index else "float32", _listed(notes))


def _output(one: OpOutput) -> str:
    notes = [
        "one or several" if one.repeated else "",
        "its gradient is 1 unless given" if one.loss else "" if one.has_gradient else "no gradient",
    ]
    return _row(f"`{one.name}`", one.dtype, _listed(notes))


def _option(option: Option) -> str:
    values = ", ".join(f"`{choice}`" for choice in option.choices) if option.choices else option.expected
    return _row(
        f"`{option.name}`", type(option.default).__name__, f"`{option.default!r}`", values, option.help
    )


def _listed(notes: list[str]) -> str:
    return ", ".join(filter(None, notes))


def _row(*cells: str) -> str:
    row = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {row} |".replace("|  |", "| |")


def drawn(page: str) -> str:
    """Return the text of the page with its current sections."""
    sections = "\n\n".join(section(spec) for spec in op_specs())
    return _PART.sub(lambda _: f"<!-- ops -->\n{sections}\n<!-- end of the ops -->", page)
