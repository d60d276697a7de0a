"""Tables for notebooks: what `_repr_html_` of the public objects returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

_CELL = "text-align:left;padding:1px 8px"


def html_table(
    rows: Iterable[Sequence[str]], *, title: str = "", head: Sequence[str] = (), marked: Collection[int] = ()
) -> str:
    """A table of texts, escaped; rows whose numbers are in `marked` are bold."""
    lines = [f"<div><b>{escape(title)}</b></div>"] if title else []
    lines.append("<table>")
    if head:
        lines.append(_row(head, "th"))
    lines += [_row(row, "th" if number in marked else "td") for number, row in enumerate(rows)]
    return "\n".join([*lines, "</table>"])


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"


def folded(summary: str, table: str) -> str:
    """A table behind a line that opens it."""
    return f"<details><summary>{escape(summary)}</summary>\n{table}\n</details>"
