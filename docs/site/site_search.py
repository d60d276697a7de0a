"""Write the index of the site's search: the sections of all pages, as a script that the search page loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

# A page of the file system may not fetch a file, but may load a script.
_FILE = "search_sections.js"


def sections(app: Sphinx) -> list[list[str]]:
    """Return `[page, title of the page, anchor, heading, text]` for every section, in the order of the pages."""
    found = []
    for page in sorted(app.env.found_docs):
        tree = app.env.get_doctree(page)
        title = ""
        for section in tree.findall(nodes.section):
            heading = section.next_node(nodes.title)
            name = heading.astext() if heading else ""
            anchor = section["ids"][0] if title else ""
            title = title or name
            found.append([page, title, anchor, name, _text(section)])
    return found


def links(app: Sphinx) -> dict[str, str]:
    """Return what the first page says of each page that it links."""
    found: dict[str, str] = {}
    for link in app.env.get_doctree("index").findall(addnodes.pending_xref):
        page = link["reftarget"].removesuffix(".md")
        found[page] = f"{found.get(page, '')} {link.astext()}".strip()
    return found


def _text(section: nodes.section) -> str:
    """The text of a section without its title and its inner sections."""
    skipped = (nodes.title, nodes.section, nodes.raw, nodes.comment)
    own = [child for child in section.children if not isinstance(child, skipped)]
    texts = (node.astext() for child in own for node in child.findall(nodes.Text))
    return " ".join(" ".join(texts).split())


def _finish(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        values = {"searchSections": sections(app), "searchLinks": links(app)}
        lines = [
            f"window.{name} = {json.dumps(value, ensure_ascii=False)};\n" for name, value in values.items()
        ]
        (Path(app.outdir) / "_static" / _FILE).write_text("".join(lines), encoding="utf-8")


def _without_own_index(app: Sphinx) -> None:
    app.builder.search = False  # it would write search.html too


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the index to the end of a build."""
    app.connect("builder-inited", _without_own_index)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
