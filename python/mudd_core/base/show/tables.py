"""Tables: HTML for `_repr_html_` of the public objects in notebooks, and characters for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mudd_core.base.show.printable import escaped

_CELL = "text-align:left;padding:1px 8px"


def html_table(
    rows: Iterable[Sequence[str]], *, title: str = "", head: Sequence[str] = (), marked: Collection[int] = ()
) -> str:
    """Return a table of escaped strings; rows whose index is in `marked` are bold."""
    lines = [f"<div><b>{escaped(title)}</b></div>"] if title else []
    lines.append("<table>")
    if head:
        lines.append(_row(head, "th"))
    lines += [_row(row, "th" if number in marked else "td") for number, row in enumerate(rows)]
    return "\n".join([*lines, "</table>"])


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{escaped(cell)}</{tag}>' for cell in cells) + "</tr>"


def folded(summary: str, table: str) -> str:
    """Return a collapsed table that opens with a click on its summary."""
    return f"<details><summary>{escaped(summary)}</summary>\n{table}\n</details>"


def text_table(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> list[str]:
    """Return a line for each row; all rows have equal length. Columns in `left` are aligned left, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(row, widths, left)).rstrip() for row in rows]


def _aligned(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> list[str]:
    cells = zip(row, widths, strict=True)
    return [cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(cells)]
