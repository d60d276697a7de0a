"""Print the tables of keys in docs/reference/keys from the programs (./run docs rewrites them).

A table is between the lines `<!-- keys: GRAMMAR [FILE.yml ...] -->` and `<!-- end of the keys -->`. If files are
named, it has only the keys of these files and the keys that no file has.
"""

from __future__ import annotations

import re
from pathlib import Path

import table_cells
from mudd_core.programs.program import rows_of
from mudd_core.programs.row import Row, Value

_DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = _DOCS / "coming-from"
KEYS = _DOCS / "reference" / "keys"
_TABLE = re.compile(r"<!-- keys: ([^>]*) -->\n.*?<!-- end of the keys -->", re.DOTALL)
_FILES = ("base_v2.yml", "tokenformer.yml", "gpt2.yml")


def table(what: str) -> str:
    """Return the table of a grammar, or of the keys in some of its files."""
    grammar, *files = what.split()
    rows = rows_of(grammar)
    own: dict[str, Value] = {}
    if files:
        # Imported here, because other tables and tests that import this module also work without MaxText's folder.
        from mudd_core.programs.maxtext.yml import read_yml

        for file in reversed(files):
            own |= read_yml(file).values
        others = {name for file in _FILES for name in read_yml(file).values} - own.keys()
        rows = {name: row for name, row in rows.items() if name not in others}
    lines = ["| key | default | here |", "| --- | --- | --- |"]
    lines += [_line(row, own.get(name, row.default)) for name, row in rows.items()]
    return "\n".join(lines)


def _line(row: Row, value: Value) -> str:
    default = "" if value in ("", None) else f"`{value}`"
    fields = ", ".join(name if name.startswith("(") else f"`{name}`" for name in row.fields)
    meaning = ". ".join(filter(None, (fields, table_cells.sentences(row.meaning))))
    return f"| `{row.name}` | {default} | {meaning} |".replace("|  |", "| |")


def drawn(page: str) -> str:
    """Return the text of a page with its current tables."""
    return _TABLE.sub(lambda m: f"<!-- keys: {m[1]} -->\n{table(m[1])}\n<!-- end of the keys -->", page)
