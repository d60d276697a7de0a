"""Check that only prose differs from a commit: comments, docstrings, strings and pages.

    python tests/words_only.py REV     print the strings that differ and every other change; exit code 1 if there is one

Python files are compared as syntax trees without docstrings and positions, C++ files as tokens without comments. Their
string constants may differ and are printed, because some of them are keys. Of other files only pages (.md) may differ.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cpp_text
import prose_texts

ROOT = Path(__file__).resolve().parents[1]
CPP = {".cc", ".h", ".inc"}
PYTHON = {".py", ".pyi"}
_TOKEN = re.compile(r"\w+|\+\+|--|<<|>>|->|&&|\|\||::|[^\w\s]")
_STRING = "\0"


class Source(NamedTuple):
    """A source without its words. code: to compare; strings: the constants in it, in order."""

    code: list[str]
    strings: list[str]


class _Strings(ast.NodeTransformer):
    """Removes docstrings, and replaces each string by an empty one, of an f-string the text between its values."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def _documented(
        self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    visit_Module = visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _documented

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Note a string."""
        if not isinstance(node.value, str):
            return node
        self.found.append(node.value)
        return ast.Constant("")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Note the text of an f-string, with braces for its values, and keep the values."""
        self.found.append(prose_texts.template(node))
        values = [part for part in node.values if not isinstance(part, ast.Constant)]
        return self.generic_visit(ast.JoinedStr(values))


def python_source(text: str) -> Source:
    """Read a Python source."""
    strings = _Strings()
    tree = strings.visit(ast.parse(text))
    return Source([ast.dump(statement) for statement in tree.body], strings.found)


def cpp_source(text: str) -> Source:
    """Read a C++ source. Adjacent literals are one string; a preprocessor directive ends with its line."""
    code, strings = [], []
    for kind, _, piece in cpp_text.pieces(text):
        if kind == "string":
            code.append(_STRING)
            strings.append(piece)
        else:
            code.append(" " if kind == "comment" else piece)
    tokens: list[str] = []
    joined: list[str] = []
    rest = iter(strings)
    for line in "".join(code).replace("\\\n", " ").split("\n"):
        for token in re.findall(rf"{_STRING}|{_TOKEN.pattern}", line):
            if token == _STRING and tokens and tokens[-1] == _STRING:
                joined[-1] += next(rest)
                continue
            if token == _STRING:
                joined.append(next(rest))
            tokens.append(token)
        if line.lstrip().startswith("#"):
            tokens.append("\n")
    return Source(tokens, joined)


def compare(name: str, read: Callable[[str], Source], before: str, after: str) -> tuple[list[str], list[str]]:
    """Return one line for each string that differs, and one for each fault."""
    old, new = read(before), read(after)
    if old.code != new.code or len(old.strings) != len(new.strings):
        place = next((i for i, (a, b) in enumerate(zip(old.code, new.code, strict=False)) if a != b), None)
        shown = f"'{new.code[place]:.80}'" if place is not None else "a part added or removed at the end"
        return [], [f"{name}: expected the same code, got {shown}"]
    pairs = zip(old.strings, new.strings, strict=True)
    return [f"{name}: {a!r} -> {b!r}" for a, b in pairs if a != b], []


def changes(revision: str, root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Return the strings that differ between a commit and the tree, and the faults."""
    strings: list[str] = []
    faults: list[str] = []
    status = prose_texts.git(root, "diff", "--name-status", "--no-renames", revision, "--")
    for line in status.splitlines():
        kind, name = line.split("\t")
        suffix = Path(name).suffix
        if suffix == ".md":
            continue
        if kind != "M":
            faults.append(
                f"{name}: expected the same files, got one that is {'new' if kind == 'A' else 'deleted'}"
            )
        elif suffix in CPP | PYTHON:
            read = cpp_source if suffix in CPP else python_source
            before = prose_texts.git(root, "show", f"{revision}:{name}")
            listed, found = compare(name, read, before, (root / name).read_text(encoding="utf-8"))
            strings += listed
            faults += found
        else:
            faults.append(f"{name}: expected changes of Python, C++ and pages only")
    untracked = prose_texts.git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    faults += [
        f"{name}: expected the same files, got one that is new"
        for name in untracked
        if Path(name).suffix != ".md"
    ]
    return strings, faults


def main(arguments: list[str]) -> int:
    """Print the changes since the commit in the first argument."""
    if len(arguments) != 1:
        print("usage: python tests/words_only.py REV")
        return 2
    strings, faults = changes(arguments[0])
    for line in [*strings, *faults]:
        print(line)
    print(
        f"words only: {'no' if faults else 'yes'}; {len(strings)} strings differ, {len(faults)} other changes"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
