"""Write the generated parts of docs/: commands, keys, tested items, layers, ops, scale, hashes and reference pages.

Also write tests/data/page_commands.txt, the table of all commands in the pages.

python tests/generated_docs.py    write them, and print the pages that changed (./run docs)
"""

from __future__ import annotations

import os
from pathlib import Path

import architecture
import command_tables
import covered
import key_tables
import keyword_stubs
import op_tables
import page_commands
import reference_pages
import same_bits
from mudd_core.tools.scale.page import axis_tables, tables

DOCS = Path(__file__).resolve().parents[1] / "docs"
_AXES = "<!-- launch.py scale --axes -->", "<!-- end of the axes -->"
_BEGIN, _END = "<!-- launch.py scale --tables -->", "<!-- end of the tables -->"


def pages() -> dict[Path, str]:
    """Return the current text of each page that is partly generated."""
    coming = {path: path.read_text(encoding="utf-8") for path in key_tables.PAGES.glob("*.md")}
    found = {path: covered.drawn(command_tables.drawn(text)) for path, text in coming.items()}
    for path in key_tables.KEYS.glob("*.md"):
        found[path] = key_tables.drawn(path.read_text(encoding="utf-8"))
    found[architecture.PAGE] = covered.drawn(
        architecture.redrawn(architecture.PAGE.read_text(encoding="utf-8"))
    )
    found[op_tables.PAGE] = op_tables.drawn(op_tables.PAGE.read_text(encoding="utf-8"))
    found[same_bits.PAGE] = same_bits.drawn(same_bits.PAGE.read_text(encoding="utf-8"))
    scale = DOCS / "scale.md"
    text = scale.read_text(encoding="utf-8")
    for begin, end, made in ((_BEGIN, _END, tables()), (*_AXES, axis_tables())):
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}\n{end}{rest.split(end)[1]}"
    found[scale] = text
    found[page_commands.TABLE] = page_commands.text()
    return found | keyword_stubs.files() | reference_pages.pages()


def main() -> None:
    for path, text in sorted(pages().items()):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
