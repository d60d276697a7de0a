"""Keys and origins of a command of an original program, as text."""

from __future__ import annotations

import textwrap
from pathlib import Path

from mudd_core.base.show.printable import visible_line
from mudd_core.config.origins import Key, explained
from mudd_core.programs.program import rows_of
from mudd_core.programs.resolved import Resolved


def explained_key(resolved: Resolved, name: str) -> str:
    """Return what a key of the grammar or a field of ours decides, and where the values come from."""
    row = rows_of(resolved.grammar).get(name)
    key = None if row is None else Key(f"{row.fate}{f'; {row.text}' if row.text else ''}", row.fields)
    return explained(resolved.config, name, resolved.origins, key)


def origin_text(resolved: Resolved) -> str:
    """A line for each origin of values: the arguments, then each file, with the fields that it decides."""
    by_place: dict[str, list[str]] = {}
    for path, origin in resolved.origins.items():
        place = "arguments" if origin.word else Path(origin.file).name
        shown = f"{path} ({visible_line(origin.word)})" if origin.word else path
        by_place.setdefault(place or "defaults", []).append(shown)
    lines = [f"from {place}: {', '.join(paths)}" for place, paths in by_place.items()]
    return "\n".join(
        textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in lines
    )
