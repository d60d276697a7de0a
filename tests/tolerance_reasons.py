"""Find tolerances in the Python tests without a reason: python tests/tolerance_reasons.py prints their places.

tests/tolerances.inc has the bounds of single ops, tests/python/near.py those that many tests share. A literal elsewhere
has a comment: in its statement, in the line above, or above the statements that precede it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
_NAMES = ("rtol", "atol", "rel", "abs")
_SMALL = 0.01  # a comparison with a smaller number is a tolerance


def unexplained() -> list[str]:
    """Return `FILE:LINE` of each literal without a reason."""
    found = []
    for file in sorted(TESTS.glob("python/**/*.py")):
        text = file.read_text(encoding="utf-8")
        found += [f"{file.relative_to(TESTS)}:{line}" for line in lines_without_reason(text)]
    return found


def lines_without_reason(text: str) -> list[int]:
    """Return the lines of a file that have a tolerance without a comment. One comment covers consecutive statements."""
    lines = text.splitlines()
    found: list[int] = []
    explained = -1  # the last line of the newest statement with a reason
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    for statement in sorted(statements, key=lambda node: node.lineno):
        own = sorted({node.lineno for child in _own(statement) for node in _tolerances(child)})
        if not own:
            continue
        end = statement.end_lineno or statement.lineno
        around = lines[max(0, statement.lineno - 2) : end]
        if explained == statement.lineno - 1 or any("#" in line for line in around):
            explained = end
        else:
            found += own
    return found


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            yield from (node for node in ast.walk(child))


def _tolerances(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.keyword) and node.arg in _NAMES and _literal(node.value):
        yield node.value
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE):
        last = node.comparators[-1]
        if any(0 < number < _SMALL for number in _floats(last)):
            yield last


def _literal(value: ast.expr) -> bool:
    return any(number > 0 for number in _floats(value))


def _floats(value: ast.expr) -> list[float]:
    """Return the floats in a value or its factors."""
    nodes = [value, *(n for n in (getattr(value, "left", None), getattr(value, "right", None)) if n)]
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, float)]


if __name__ == "__main__":
    print("\n".join(unexplained()))
