"""Draw the diagrams of a page, which it has as Mermaid, as SVG: no page of the site loads a program for that."""

from __future__ import annotations

import re
from itertools import groupby

_DIAGRAM = re.compile(r"^```mermaid\nflowchart TD\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EDGE = re.compile(r"(\w+)\[\w+\] --> (\w+)\[\w+\]")
_TITLE = re.compile(r"%% (\S+)")
_WIDTH, _ROW, _BOX = 720, 64, 26  # pixels


def drawn(page: str) -> str:
    """Return the Markdown of a page with each of its diagrams as SVG."""
    return _DIAGRAM.sub(lambda match: f"```{{raw}} html\n{_svg(match[1])}\n```", page)


def depths(edges: list[tuple[str, str]]) -> dict[str, int]:
    """Return the row of each box, counted from the top: below every box that points to it."""
    found = {name: 0 for edge in edges for name in edge}
    for _ in found:
        for above, below in edges:
            found[below] = max(found[below], found[above] + 1)
    return found


def _svg(text: str) -> str:
    edges = _EDGE.findall(text)
    title = _TITLE.search(text)
    found = depths(edges)
    places = {}
    for row, names in groupby(sorted(found, key=found.__getitem__), key=found.__getitem__):
        listed = list(names)
        for number, name in enumerate(listed):
            # Every second row is moved, so that a line over several rows passes between the boxes.
            shift = 0.5 + (0.16 if row % 2 else -0.16) / len(listed)
            places[name] = (_WIDTH * (number + shift) / len(listed), _ROW * row + 20.0)
    height = _ROW * max(found.values()) + 40
    lines = "".join(_line(*places[above], *places[below]) for above, below in edges)
    boxes = "".join(_box(name, *place) for name, place in places.items())
    name = title[1] if title else "diagram"
    return (
        f'<svg class="diagram" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="layers of {name}">'
        f"<title>Layers of {name}</title>{lines}{boxes}</svg>"
    )


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    start, end = y + _BOX / 2, to_y - _BOX / 2
    bend = (end - start) / 2
    path = f"M{x:.0f} {start:.0f}C{x:.0f} {start + bend:.0f} {to_x:.0f} {end - bend:.0f} {to_x:.0f} {end:.0f}"
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'


def _box(name: str, x: float, y: float) -> str:
    width = 9 * len(name) + 14
    return (
        f'<rect class="box" x="{x - width / 2:.0f}" y="{y - _BOX / 2:.0f}" width="{width}" height="{_BOX}" rx="4"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{name}</text>'
    )
