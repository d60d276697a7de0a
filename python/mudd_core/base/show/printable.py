"""Text of a model or a file, as a terminal or one line of a log can show it."""

from __future__ import annotations

import html

# Control characters move the cursor or recolour a terminal; those of text stay.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Marks that change the direction of the text around them: a value can look like another one.
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = _ESCAPED | {code: f"\\u{code:04x}" for code in (*_BIDI, 0x2028, 0x2029)}
_IN_ONE_LINE = _VISIBLE | {ord("\n"): "\\n", ord("\t"): "\\t"}
_SHOWN = 160  # characters of a text on one line


def printable(text: str) -> str:
    """The text with its control characters escaped, for a terminal."""
    return text.translate(_ESCAPED)


def visible(text: str) -> str:
    """The text with its control characters and bidirectional marks escaped: values of a run that may be anybody's."""
    return text.translate(_VISIBLE)


def visible_line(text: str) -> str:
    """The same with line feeds and tabs escaped, for a value inside a line."""
    return text.translate(_IN_ONE_LINE)


def escaped(text: str) -> str:
    """The text as `visible` returns it, for HTML."""
    return html.escape(visible(text))


def beginning_of(text: str) -> str:
    """The beginning of a text, in quotes and on one line, for a log."""
    line = " ".join(visible(text).split())
    return f'"{line[:_SHOWN]}{"..." if len(line) > _SHOWN else ""}"'
