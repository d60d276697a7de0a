"""HTML elements with escaped text: paragraphs, tables, folded parts, and JSON for the page's script."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mudd_core.base.show.printable import escaped, visible
from mudd_core.base.types import Json


def text(words: str, kind: str = "") -> str:
    """Return a paragraph. kind: a class of page.css, such as "note"."""
    return f"<p{_class(kind)}>{escaped(words)}</p>"


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), kind: str = "") -> str:
    """Return a table of strings, which scrolls if it is wider than the page. kind: a class of page.css."""
    top = f"<thead>{_row(head, 'th')}</thead>" if head else ""
    body = "".join(_row(row, "td") for row in rows)
    return f'<div class="wide"><table{_class(kind)}>{top}<tbody>{body}</tbody></table></div>'


def charts(figures: Iterable[str]) -> str:
    """Return the charts in a grid, side by side if the page is wide enough; '' if all of them are empty."""
    body = "".join(figures)
    return f'<div class="charts">{body}</div>' if body else ""


def folded(summary: str, body: str) -> str:
    """Return HTML that is hidden until the user opens its summary line."""
    return f"<details><summary>{escaped(summary)}</summary>{body}</details>"


def preformatted(words: str) -> str:
    """Return preformatted text; long lines are wrapped."""
    return f"<pre>{escaped(words)}</pre>"


def data(value: Json) -> str:
    """Return a script element with a value as JSON, for page.js; put it inside the element that it describes."""
    plain = json.dumps(_visible(value), separators=(",", ":"), allow_nan=False)
    safe = plain.replace("<", "\\u003c")
    return f'<script type="application/json">{safe}</script>'


def _visible(value: Json) -> Json:
    if isinstance(value, dict):
        return {visible(name): _visible(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_visible(one) for one in value]
    return visible(value) if isinstance(value, str) else value


def clock_text(time: Json) -> str:
    """Return a time of events.jsonl or run.json as `2026-01-31 14:05`; '' if there is none."""
    return str(time)[:16].replace("T", " ") if isinstance(time, str) else ""


def short(value: float, digits: int = 5) -> Json:
    """Return a value rounded to `digits` significant digits, for `data`; None if it is NaN or infinite."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escaped(cell)}</{tag}>" for cell in cells) + "</tr>"


def _class(kind: str) -> str:
    return f' class="{escaped(kind)}"' if kind else ""


@dataclass(frozen=True)
class Section:
    """A section of the page. title: plain text. body: HTML in which all text of a run is escaped."""

    title: str
    body: str
