"""A part of a comparison as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from mudd_core.base.show.tables import text_table
from mudd_core.tools.compare import Part


def part_lines(part: Part, width: int) -> Iterator[str]:
    """Yield the lines of a part: its title, its table or a list if the table is too wide, and its sentences."""
    yield part.title
    if part.rows:
        columns = len(part.rows[0])
        table = text_table(part.rows, left=range(columns) if part.words else (0,))
        fits = all(len(line) + 2 <= width for line in table)
        yield from (f"  {line}".rstrip() for line in (table if fits else _listed(part.rows)))
    for note in part.notes:
        if note.startswith(" "):  # a command, which is not wrapped
            yield note
        else:
            yield from textwrap.wrap(
                note, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )


def _listed(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table that is too wide: one line for each cell, below the name of the row."""
    head, *rest = rows
    for name, *cells in rest:
        yield name
        labels = head[1:]
        margin = max(map(len, labels))
        yield from (f"  {label:<{margin}}  {cell}" for label, cell in zip(labels, cells, strict=True))
