"""The HTML document: head, style, sections with links to them, the switch of the charts' x axis, and the script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.show.printable import escaped
from mudd_core.run.report.page.elements import Section
from mudd_core.run.report.page.records import ACROSS

_HERE = Path(__file__).parent
_LINES = 'class="view x0"'  # is in the body of each section with a line chart


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    *,
    status: str = "",
    more: str = "",
    across: Sequence[str] = ACROSS,
) -> str:
    """Return a self-contained HTML document. title, subtitle, status: plain text; status is short, like "finished".

    more: HTML after the subtitle. across: the quantities that the x axes of its line charts can have. The content
    security policy allows only the page's script, and no request to any other file or host.
    """
    style, script = (_HERE.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    links = "".join(f'<a href="#part-{place}">{escaped(one.title)}</a>' for place, one in enumerate(sections))
    parts = "\n".join(
        f'<section id="part-{place}"><h2>{escaped(one.title)}</h2>{one.body}</section>'
        for place, one in enumerate(sections)
    )
    switch = _switch(across) if _LINES in parts else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{escaped(title)}</h1>{_status(status)}<p>{escaped(subtitle)}{more}</p></header>\n"
        f"<nav><div class=links>{links}</div>{switch}</nav>\n<main>\n{parts}\n</main>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _status(status: str) -> str:
    return f'<span class="status {escaped(status)}">{escaped(status)}</span>' if status else ""


def _switch(across: Sequence[str]) -> str:
    """Return the switch of the charts' x axis. page.css shows the chosen SVGs, so it works without the script."""
    choices = "".join(
        f'<label><input type="radio" name="across" id="x{place}" value="{place}"{" checked" if not place else ""}>'
        f"<span>{name}</span></label>"
        for place, name in enumerate(across)
    )
    return f'<fieldset class="switch"><legend>over</legend>{choices}</fieldset>'
