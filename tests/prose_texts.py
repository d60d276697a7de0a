"""The prose of the repository: comments and docstrings, messages, and pages, each with its lines."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import cpp_text

Kind = Literal["comment", "message", "page"]
KINDS: tuple[Kind, ...] = ("comment", "message", "page")
NOT_OURS = ("tests/data/", "tests/goldens/", "tests/reference/", "bench/results/")
_MESSAGE_WORDS = 3  # shorter strings are keys and names
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_NEW_BLOCK = re.compile(r"^\s*(?:[-*#>]|\d+\.)\s|^\s*\|")


class Prose(NamedTuple):
    """A comment, a message or a paragraph, and the first and the last line of its source."""

    kind: Kind
    first: int
    last: int
    text: str


def _joined(lines: list[tuple[int, int, str]], kind: Kind) -> Iterator[Prose]:
    """Join (line, column, text) of comments that continue each other: consecutive lines at one column.

    A comment after code has the column -1 and stays alone.
    """
    block: list[tuple[int, int, str]] = []
    for entry in [*lines, (-1, -1, "")]:
        if block and (entry[1] < 0 or (entry[0], entry[1]) != (block[-1][0] + 1, block[-1][1])):
            yield Prose(kind, block[0][0], block[-1][0], "\n".join(text for _, _, text in block))
            block = []
        block.append(entry)


def _python_docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value


def template(node: ast.JoinedStr) -> str:
    """Return the text of an f-string, with braces for its values."""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def python_prose(source: str) -> Iterator[Prose]:
    """Yield the docstrings, comments and messages of a Python source."""
    tree = ast.parse(source)
    passed: set[int] = set()
    for docstring in _python_docstrings(tree):
        passed.add(id(docstring))
        last = docstring.end_lineno or docstring.lineno
        yield Prose("comment", docstring.lineno, last, str(docstring.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed.update(id(part) for part in ast.walk(node) if isinstance(part, ast.Constant))
            text = template(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            text = node.value
        else:
            continue
        if len(text.split()) >= _MESSAGE_WORDS:
            yield Prose("message", node.lineno, node.end_lineno or node.lineno, text)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [
        (one.start[0], one.start[1] if one.line.lstrip().startswith("#") else -1, one.string.lstrip("# "))
        for one in tokens
        if one.type == tokenize.COMMENT
    ]
    yield from _joined(comments, "comment")


def cpp_prose(source: str) -> Iterator[Prose]:
    """Yield the comments and messages of a C++ source."""
    comments, lines = [], source.splitlines()
    for kind, line, text in cpp_text.pieces(source):
        if kind == "comment":
            own_line = lines[line - 1].lstrip().startswith(text.splitlines()[0])
            column = lines[line - 1].find(text.splitlines()[0]) if own_line else -1
            comments.append((line, column, text.strip("/*! ")))
        elif kind == "string" and len(text.split()) >= _MESSAGE_WORDS:
            yield Prose("message", line, line + text.count("\n"), text)
    yield from _joined(comments, "comment")


def page_prose(source: str) -> Iterator[Prose]:
    """Yield the paragraphs, list items and table lines of a Markdown page, without its code blocks."""
    fenced, block, first = False, [], 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence = _FENCE.match(line) is not None
        if block and (is_fence or not line.strip() or _NEW_BLOCK.match(line)):
            yield Prose("page", first, number - 1, "\n".join(block))
            block = []
        if is_fence:
            fenced = not fenced
        elif not fenced and line.strip():
            first = number if not block else first
            block.append(line)


def prose_of(name: str, source: str) -> Iterator[Prose]:
    """Yield the prose of a file, chosen by its suffix; yield nothing for other kinds of files."""
    readers = {".py": python_prose, ".md": page_prose} | dict.fromkeys((".cc", ".h", ".inc"), cpp_prose)
    reader = readers.get(Path(name).suffix)
    if reader is not None:
        yield from reader(source)


def git(root: Path, *arguments: str) -> str:
    """Return the output of git in a repository; CalledProcessError if git fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def files(root: Path, places: list[str]) -> list[str]:
    """Return the names of the project's files below some places, untracked ones included."""
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "--", *places).splitlines()
    return sorted({name for name in listed if not name.startswith(NOT_OURS) and (root / name).is_file()})


def changed_lines(root: Path, revision: str) -> dict[str, set[int]]:
    """Return the lines of each file that were added or changed since a revision; of an untracked file, all."""
    changed: dict[str, set[int]] = {}
    name = ""
    for line in git(root, "diff", "-U0", "--no-color", "--no-ext-diff", revision, "--").splitlines():
        if line.startswith("+++ "):
            name = line.removeprefix("+++ ").removeprefix("b/")
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start = int(found[1])
            changed.setdefault(name, set()).update(range(start, start + int(found[2] or 1)))
    for untracked in git(root, "ls-files", "--others", "--exclude-standard").splitlines():
        changed[untracked] = set(range(1, 100_000))
    return changed
