"""Tables as lines of characters, for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def text_table(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> list[str]:
    """Return a line for each row, all rows of one length; columns in `left` are aligned left, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(row, widths, left)).rstrip() for row in rows]


def _aligned(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> list[str]:
    cells = zip(row, widths, strict=True)
    return [cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(cells)]
