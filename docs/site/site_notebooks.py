"""Turn a notebook with its outputs into a page in Markdown; nothing is executed."""

from __future__ import annotations

import json
from typing import TypeAlias

Cell: TypeAlias = dict[str, object]


class MissingOutputError(ValueError):
    """A notebook with a cell that was not run."""


def markdown(name: str, notebook: str) -> str:
    """Return the page of a notebook: its text, its code and, after each cell, the outputs.

    Raises MissingOutputError with the name of the notebook for a cell that was not run, and for a cell that prints
    and has no output.
    """
    parts = []
    for number, cell in enumerate(json.loads(notebook)["cells"], 1):
        source = _joined(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        if cell.get("execution_count") is None or ("print(" in source and not cell["outputs"]):
            raise MissingOutputError(
                f"{name}, cell {number}: expected the output of its code, found none; run the notebook and save it"
            )
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _output(output: Cell) -> str:
    data = output.get("data", {})
    if not isinstance(data, dict):
        raise MissingOutputError(f"an output's data: expected an object, got {data!r}")
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            return f'````{{raw}} html\n<div class="output">{_joined(data[kind])}</div>\n````'
    text = output.get("text", data.get("text/plain", ""))
    return f"````{{code-block}} text\n:class: output\n\n{_joined(text).rstrip()}\n````"


def _joined(lines: object) -> str:
    return "".join(lines) if isinstance(lines, list) else str(lines)
