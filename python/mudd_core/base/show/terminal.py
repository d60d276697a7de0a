"""Terminal layout: the width of standard output, its non-ASCII characters, and paragraphs of help."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

PLAIN_WIDTH = 80  # of a pipe, a file, or a terminal that does not report its width
_NARROWEST, _WIDEST = 40, 160


@dataclass(frozen=True)
class Screen:
    """Properties of a terminal. width: columns of a line. fine: True if the terminal shows braille characters."""

    width: int = PLAIN_WIDTH
    fine: bool = False


def screen() -> Screen:
    """Return the size of the terminal of standard output; 80 columns of ASCII if it is not a terminal."""
    if not sys.stdout.isatty():
        return Screen()
    return Screen(min(_WIDEST, max(_NARROWEST, columns(sys.stdout))), locale_is_utf8(os.environ))


def columns(stream: TextIO) -> int:
    """Return the current width of a terminal; 80 if it does not report one."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or PLAIN_WIDTH
    except (OSError, ValueError):
        return PLAIN_WIDTH


def locale_is_utf8(environment: Mapping[str, str]) -> bool:
    """Return True if the locale's variables name UTF-8; the encoding of the stream is UTF-8 in every locale."""
    named = (environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    found = next(filter(None, named), "")
    return found.lower().replace("-", "").endswith("utf8")


WIDTH = 96  # columns


def folded(text: str, width: int = WIDTH) -> str:
    """Return a string with its paragraphs refilled; a paragraph with an indented line is not changed."""
    paragraphs = textwrap.dedent(text).strip().split("\n\n")
    return "\n\n".join(
        part if any(line.startswith(" ") for line in part.splitlines()) else textwrap.fill(part, width)
        for part in paragraphs
    )
