"""Find package files that repeat names of a table: in literals, match statements or branches."""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cache
from pathlib import Path

import mudd_core

ROOT = Path(mudd_core.__file__).parent


def _parts(node: ast.AST) -> list[list[ast.expr | None]]:
    """Return the alternatives of a literal, a match, or a chain of comparisons or branches."""
    match node:
        case ast.Dict():
            return [[*node.keys], [*node.values]]
        case ast.Tuple() | ast.List() | ast.Set():
            return [[*node.elts]]
        case ast.Match():
            return [[x.value for x in ast.walk(node) if isinstance(x, ast.MatchValue)]]
        case ast.BoolOp() | ast.If() | ast.IfExp():
            tests = node.values if isinstance(node, ast.BoolOp) else _branches(node)
            return [[side for x in tests if isinstance(x, ast.Compare) for side in (x.left, *x.comparators)]]
    return []


def _branches(node: ast.If | ast.IfExp) -> list[ast.expr]:
    """Return the tests of if and its elifs."""
    after = node.orelse if isinstance(node, ast.IfExp) else node.orelse[0] if len(node.orelse) == 1 else None
    return [node.test, *(_branches(after) if isinstance(after, ast.If | ast.IfExp) else [])]


@cache
def _literals(code: str) -> frozenset[frozenset[str]]:
    """Return the strings of each list of two or more in the code."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        for part in _parts(node):
            found.add(
                frozenset(x.value for x in part if isinstance(x, ast.Constant) and isinstance(x.value, str))
            )
    return frozenset(strings for strings in found if len(strings) > 1)


def lists(code: str, names: set[str], nouns: Collection[str] = ()) -> bool:
    """Return True if code lists two of the names, or three if they are also common nouns."""
    return any(
        len((strings & names) - set(nouns)) > 1 or len(strings & names) > 2 for strings in _literals(code)
    )


@cache
def _package() -> dict[str, str]:
    """Return the code of each file of the package."""
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in ROOT.rglob("*.py")}


def files_that_list(names: set[str], nouns: Collection[str] = ()) -> set[str]:
    """Return the files of the package whose code lists two of the names, by `lists`."""
    return {file for file, code in _package().items() if lists(code, names, nouns)}
