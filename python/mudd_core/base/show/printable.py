"""Strings of a model or a file, made safe for a terminal or one line of a log."""

from __future__ import annotations

import html

# Control characters move the cursor or recolour a terminal; tabs and line feeds are kept.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Bidirectional marks change the direction of the text around them, so a value can look like another one.
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = _ESCAPED | {code: f"\\u{code:04x}" for code in (*_BIDI, 0x2028, 0x2029)}
_IN_ONE_LINE = _VISIBLE | {ord("\n"): "\\n", ord("\t"): "\\t"}
_SHOWN = 160  # longest string on one line, in characters


def printable(text: str) -> str:
    """Return the string with its control characters escaped, for a terminal."""
    return text.translate(_ESCAPED)


def visible(text: str) -> str:
    """Return the string with control characters and bidirectional marks escaped, for values from untrusted runs."""
    return text.translate(_VISIBLE)


def visible_line(text: str) -> str:
    """Return the string as visible() does, with line feeds and tabs escaped too, for a value inside a line."""
    return text.translate(_IN_ONE_LINE)


def escaped(text: str) -> str:
    """Return the string as visible() does, escaped for HTML."""
    return html.escape(visible(text))


def beginning_of(text: str) -> str:
    """Return the first characters of a string, in quotes and on one line, for a log."""
    line = " ".join(visible(text).split())
    return f'"{line[:_SHOWN]}{"..." if len(line) > _SHOWN else ""}"'
