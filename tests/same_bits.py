"""Final hashes of the families by CPU, compiler and level: bench/results/same_bits.json, a table of docs/same-bits.md.

python tests/same_bits.py [TREE]    run the goldens' runs here with the modules of build/TREE, and keep the hashes

The table is between `<!-- same bits -->` and `<!-- end of the same bits -->` (./run docs writes it).
"""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / folder) for folder in ("tests/python", "python", "bench")]

import build_trees  # noqa: E402

RECORD = ROOT / "bench" / "results" / "same_bits.json"
PAGE = ROOT / "docs" / "same-bits.md"
GOLDENS = ROOT / "tests" / "goldens" / "losses" / "fp32"
DIGITS, SHOWN = 16, 12  # of a hash, in the record and in the table
_PART = re.compile(r"<!-- same bits -->\n.*?<!-- end of the same bits -->", re.DOTALL)
# Names of families by their golden file.
FAMILIES = {
    "llama_gqa": "Transformer++",
    "gpt2": "GPT-2",
    "mudd": "MUDDFormer",
    "tokenformer": "TokenFormer",
    "mup": "muP",
    "mixtral": "Mixtral",
}


class Row(TypedDict):
    """The hashes of one CPU and compiler, by level and family."""

    cpu: str
    compiler: str
    date: str
    hashes: dict[str, dict[str, str]]


def rows() -> list[Row]:
    """Return the kept rows."""
    found: list[Row] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def cpu() -> str:
    """Return the name of this CPU; on x86-64 with family and model, which tell apart CPUs of one name."""
    if platform.machine() == "aarch64":  # Linux has numbers instead of a name
        from mudd_core import _core

        return _core.cpu_name()
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    facts = {
        key: re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE)
        for key in ("model name", "cpu family", "model")
    }
    name, family, model = (found[1] if found else "unknown" for found in facts.values())
    return f"{name} (family {family}, model {model})"


def hashes_of(made: Mapping[Path, list[str]]) -> dict[str, str]:
    """Return the final hash of each family from lines of goldens."""
    last = {file.stem: lines[-1].split() for file, lines in made.items() if file.parent == GOLDENS}
    return {name: last[name][2][:DIGITS] for name in FAMILIES if last[name][1] == "hash"}


def committed() -> dict[str, str]:
    """Return the hash of each family in its golden file."""
    return hashes_of({file: file.read_text().splitlines() for file in GOLDENS.glob("*.txt")})


def measure(tree: str = "") -> Iterator[tuple[str, str]]:
    """Run every level of this CPU and store the hashes. Return the files of each level whose bits have changed."""
    import loss_goldens

    hashes: dict[str, dict[str, str]] = {}
    with TemporaryDirectory() as cache:
        for level in loss_goldens.levels():
            made = loss_goldens.lines_at(level, cache, tree)
            if not level.startswith("emu"):
                hashes[level] = hashes_of(made)
            yield level, ", ".join(file.name for file in made if made[file] != loss_goldens.read(file))
    keep(cpu(), build_trees.compiler_of(build_trees.BUILD / (tree or build_trees.OWN)), hashes)


def keep(cpu: str, compiler: str, hashes: dict[str, dict[str, str]]) -> None:
    """Write the row of a CPU and compiler into the record."""
    import row_json

    row: Row = {"cpu": cpu, "compiler": compiler, "date": time.strftime("%Y-%m-%d"), "hashes": hashes}
    # Remove entries of an earlier version with other bits.
    current = [r for r in rows() if all(found == committed() for found in r["hashes"].values())]
    others = [r for r in current if (r["cpu"], r["compiler"]) != (row["cpu"], row["compiler"])]
    RECORD.write_text(row_json.text([*others, row], 3), encoding="utf-8")


def table() -> str:
    """Return the table in Markdown: a line for each CPU, compiler and level, with the first digits of each hash."""
    lines = [
        f"| CPU | compiler | level | {' | '.join(FAMILIES.values())} |",
        "| --- " * (3 + len(FAMILIES)) + "|",
    ]
    for row in rows():
        for level, hashes in row["hashes"].items():
            digits = " | ".join(f"`{hashes[name][:SHOWN]}`" for name in FAMILIES)
            lines.append(f"| {row['cpu']} | {row['compiler']} | `{level}` | {digits} |")
    return "\n".join(lines)


def drawn(page: str) -> str:
    """Return the text of the page with its table written anew."""
    return _PART.sub(lambda _: f"<!-- same bits -->\n{table()}\n<!-- end of the same bits -->", page)


if __name__ == "__main__":
    for name, wrong in measure(*sys.argv[1:2]):
        print(
            f"{name}: {f'differs from the goldens: {wrong}' if wrong else 'the committed bits'}", flush=True
        )
