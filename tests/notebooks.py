"""Run the notebooks and compare their stored outputs with new ones; `--write` stores the new ones.

Text must be equal, and numbers within a tolerance: instruction set levels differ in the last bits. A cell with the
tag `varies` shows times, rates or sampled text; only the kinds of its outputs must be equal.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
RELATIVE, ABSOLUTE = (
    0.02,
    2e-3,
)  # the effect of another order of sums after 60 steps, and the last printed digit


def notebooks() -> list[Path]:
    """Return the notebooks of the repository, sorted by name."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Run the notebook in a fresh kernel in this folder; return it without outputs that name this machine."""
    notebook, before = (nbformat.read(path, as_version=4) for _ in range(2))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    notebook.metadata = before.metadata
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_without_progress, cell.outputs) if output is not None]
    return notebook


def _without_progress(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """Return an output without the progress of reading data, which has paths; None if nothing is left."""
    if output.output_type != "stream":
        return output
    lines = output.text.splitlines(keepends=True)
    output.text = "".join(line for line in lines if not line.startswith("data: "))
    return output if output.text else None


def differences(kept: nbformat.NotebookNode, made: nbformat.NotebookNode) -> Iterator[str]:
    """Yield one line for each cell whose outputs differ from the stored ones."""
    for number, (old, new) in enumerate(zip(kept.cells, made.cells, strict=True)):
        if old.cell_type != "code":
            continue
        before, after = _shown(old), _shown(new)
        if [kind for kind, _ in before] != [kind for kind, _ in after]:
            yield f"cell {number}: kinds of output {before} were kept, now {after}"
        elif "varies" not in old.metadata.get("tags", []):
            for (kind, text), (_, other) in zip(before, after, strict=True):
                if not near(text, other):
                    yield f"cell {number}: {kind} was {text[:2000]!r}, now {other[:2000]!r}"


def near(text: str, other: str) -> bool:
    """Return True if two texts are equal except for numbers that are close to each other."""
    if NUMBER.sub("#", text) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(text), NUMBER.findall(other), strict=True)
    return all(math.isclose(_value(a), _value(b), rel_tol=RELATIVE, abs_tol=ABSOLUTE) for a, b in pairs)


def _value(text: str) -> float:
    return float(text.replace(",", "").rstrip("."))


def _shown(cell: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Return kind and text of each output, in order; streams of one name are joined."""
    shown: list[tuple[str, str]] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            if shown and shown[-1][0] == output.name:
                shown[-1] = (output.name, shown[-1][1] + output.text)
            else:
                shown.append((output.name, output.text))
        else:
            shown += [(kind, "".join(text)) for kind, text in sorted(output.data.items())]
    return shown


def main() -> None:
    """Write new outputs of all notebooks, or of the named ones."""
    import tempfile

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", nargs="*", metavar="NAME", required=True)
    names = parser.parse_args().write
    for path in notebooks():
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(executed(path, Path(folder)), path)


if __name__ == "__main__":
    main()
