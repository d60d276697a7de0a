"""HTML elements with escaped text: paragraphs, tables, folded parts, and JSON for the page's script."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from mudd_core.base.show.printable import escaped, visible
from mudd_core.base.types import Json


def text(words: str, kind: str = "") -> str:
    """Return a paragraph. kind: a class of page.css, such as "note"."""
    return f"<p{_class(kind)}>{escaped(words)}</p>"


def link(words: str, target: str) -> str:
    """Return a link to a file. target: its relative path, or its path from the root."""
    # An escaped colon keeps a folder's name from being read as a scheme such as `javascript:`.
    return f'<a href="{escaped(quote(os.fsencode(target)))}">{escaped(words)}</a>'


def cards(facts: Iterable[tuple[str, str, str]]) -> str:
    """Return a card for each (name, value, unit or explanation)."""
    tiles = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd><dd>{escaped(more)}</dd></div>"
        for name, value, more in facts
    )
    return f'<dl class="facts">{tiles}</dl>'


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), kind: str = "") -> str:
    """Return a table of strings, which scrolls if it is wider than the page. kind: a class of page.css.

    A table of the kind "stacked" becomes a list on a phone: each cell is a line that starts with its head. A cell
    without a head names its row.
    """
    top = f"<thead>{_row(head, 'th')}</thead>" if head else ""
    names = head if kind == "stacked" else ()
    body = "".join(_row(row, "td", names) for row in rows)
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


_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[0-9:.]*(?:([+-]\d\d):?(\d\d)|Z)?$")


def clock_text(time: Json) -> str:
    """Return a time of events.jsonl or run.json as `2026-01-31 14:05 UTC+01:00`; '' if there is none.

    A time without an offset has no zone.
    """
    found = _CLOCK.match(time) if isinstance(time, str) else None
    if found is None:
        return ""
    day, clock, hours, minutes = found.groups()
    if hours is None:
        return f"{day} {clock} UTC" if found[0].endswith("Z") else f"{day} {clock}"
    zone = "UTC" if int(hours) == int(minutes) == 0 else f"UTC{hours}:{minutes}"
    return f"{day} {clock} {zone}"


def short(value: float, digits: int = 5) -> Json:
    """Return a value rounded to `digits` significant digits, for `data`; None if it is NaN or infinite."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 1e15 else rounded


def _row(cells: Sequence[str], tag: str, names: Sequence[str] = ()) -> str:
    """Return a row of a table. names: the heads of its columns, which page.css shows on a phone."""
    starts = [f'<{tag} data-head="{escaped(name)}">' for name in names] or [f"<{tag}>"] * len(cells)
    parts = (f"{start}{escaped(cell)}</{tag}>" for start, cell in zip(starts, cells, strict=True))
    return f"<tr>{''.join(parts)}</tr>"


def _class(kind: str) -> str:
    return f' class="{escaped(kind)}"' if kind else ""


@dataclass(frozen=True)
class Section:
    """A section of the page. title: plain text. body: HTML in which all text of a run is escaped."""

    title: str
    body: str
