"""The comments, string literals and code of a C++ source, for checks that tell words from code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["comment", "string", "code"]
# The name of an included file is code. A quote between digits, as in 1'000, starts no character literal.
_PIECES = re.compile(
    r"""
    (?P<include>\#[ \t]*include[ \t]*"[^"\n]*")
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>\bR"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<character>(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+')
    """,
    re.VERBOSE | re.DOTALL,
)


class Piece(NamedTuple):
    """A part of a source. text: of a comment with its slashes, of a string without its quotes."""

    kind: Kind
    line: int
    text: str


def pieces(source: str) -> Iterator[Piece]:
    """Yield the parts of a C++ source in order; the empty code between two others is left out."""
    line, done = 1, 0
    for found in _PIECES.finditer(source):
        kind = found.lastgroup if found["raw"] is None else "raw"
        if kind in ("include", "character"):
            continue
        if between := source[done : found.start()]:
            yield Piece("code", line, between)
            line += between.count("\n")
        if kind == "comment":
            yield Piece("comment", line, found[0])
        else:
            start = len(found["mark"]) + 3 if kind == "raw" else 1
            yield Piece("string", line, found[0][start : len(found[0]) - start + (kind == "raw")])
        line += found[0].count("\n")
        done = found.end()
    if rest := source[done:]:
        yield Piece("code", line, rest)
