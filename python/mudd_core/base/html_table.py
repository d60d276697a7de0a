"""Tables for notebooks: what `_repr_html_` of the public objects returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from mudd_core.base.printable import escaped

_CELL = "text-align:left;padding:1px 8px"


def html_table(
    rows: Iterable[Sequence[str]], *, title: str = "", head: Sequence[str] = (), marked: Collection[int] = ()
) -> str:
    """A table of texts, escaped; rows whose numbers are in `marked` are bold."""
    lines = [f"<div><b>{escaped(title)}</b></div>"] if title else []
    lines.append("<table>")
    if head:
        lines.append(_row(head, "th"))
    lines += [_row(row, "th" if number in marked else "td") for number, row in enumerate(rows)]
    return "\n".join([*lines, "</table>"])


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{escaped(cell)}</{tag}>' for cell in cells) + "</tr>"


def folded(summary: str, table: str) -> str:
    """A table behind a line that opens it."""
    return f"<details><summary>{escaped(summary)}</summary>\n{table}\n</details>"
