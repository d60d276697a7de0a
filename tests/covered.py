"""The features of the five originals and of the project (`card`), each with a command and its tests.

They are listed at the end of tests/data/commands/PROGRAM.txt, after `=== items` (document_commands.py has the rest).

A line is `ITEM | COMMAND | TESTS`; `\\|` is a bar. TESTS are `FILE::TEST`, after `refused` if the
program rejects the command by name; `pending` means that no test covers the item yet.
The pages in docs/coming-from have the tables between `<!-- covered: PROGRAM -->` and `<!-- end of the covered -->`.
python tests/covered.py prints the pending items.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from document_commands import FOLDER, ITEMS

TESTS = Path(__file__).resolve().parent
_TABLE = re.compile(r"<!-- covered: (\w+) -->\n.*?<!-- end of the covered -->", re.DOTALL)
_BAR = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Item:
    """One property of an original; `state` is held, refused or pending."""

    name: str
    command: str
    state: str
    tests: tuple[str, ...]


def items(program: str) -> list[Item]:
    """Return the items of a program, in the order of its file."""
    text = (FOLDER / f"{program}.txt").read_text(encoding="utf-8")
    _, found, lines = text.partition(f"{ITEMS}\n")
    if not found:
        raise ValueError(f"[covered] {program}.txt: expected a line {ITEMS!r}, found none")
    return [_item(line) for line in lines.splitlines() if line and not line.startswith("#")]


def programs() -> list[str]:
    """Return the names of the programs."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def pending() -> list[str]:
    """Return `PROGRAM: ITEM` for each item that no test covers yet."""
    found = ((program, item) for program in programs() for item in items(program))
    return [f"{program}: {item.name}" for program, item in found if item.state == "pending"]


def missing(item: Item) -> list[str]:
    """Return the tests of an item that do not exist."""
    found = []
    for test in item.tests:
        file, _, name = test.partition("::")
        if name not in _tests_of(file):
            found.append(test)
    return found


def table(program: str) -> str:
    """Return the table of a program in Markdown."""
    lines = ["| item | command | test |", "| --- | --- | --- |"]
    for item in items(program):
        tests = ", ".join(f"`{test}`" for test in item.tests)
        held = {"held": tests, "refused": f"refused: {tests}", "pending": "none yet"}[item.state]
        lines.append(f"| {item.name} | `{item.command}` | {held} |")
    return "\n".join(lines)


def drawn(page: str) -> str:
    """Return the text of a page with its current table."""
    return _TABLE.sub(lambda m: f"<!-- covered: {m[1]} -->\n{table(m[1])}\n<!-- end of the covered -->", page)


def _item(line: str) -> Item:
    parts = [part.strip() for part in _BAR.split(line)]
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"[covered] line: expected ITEM | COMMAND | TESTS, got {line!r}")
    name, command, tests = parts
    first, _, rest = tests.partition(" ")
    if first == "pending":
        return Item(name, command, "pending", tuple(rest.split()))
    if first == "refused":
        return Item(name, command, "refused", tuple(rest.split()))
    return Item(name, command, "held", tuple(tests.split()))


@cache
def _tests_of(file: str) -> frozenset[str]:
    """Return the names of the tests in a file below tests/python; empty if the file does not exist."""
    path = next((TESTS / "python").rglob(file), None)
    if path is None:
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


if __name__ == "__main__":
    print("\n".join(pending()))
