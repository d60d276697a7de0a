"""The layout of all help texts."""

from __future__ import annotations

import textwrap

WIDTH = 96  # columns


def folded(text: str, width: int = WIDTH) -> str:
    """Text with its paragraphs filled anew; those with an indented line stay as they are."""
    paragraphs = textwrap.dedent(text).strip().split("\n\n")
    return "\n\n".join(
        part if any(line.startswith(" ") for line in part.splitlines()) else textwrap.fill(part, width)
        for part in paragraphs
    )
