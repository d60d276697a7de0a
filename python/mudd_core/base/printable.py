"""Text of a model or a file, as a terminal or one line of a log can show it."""

from __future__ import annotations

# Control characters move the cursor or recolour a terminal; those of text stay.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_SHOWN = 160  # characters of a text on one line


def printable(text: str) -> str:
    """The text with its control characters escaped, for a terminal."""
    return text.translate(_ESCAPED)


def beginning_of(text: str) -> str:
    """The beginning of a text, in quotes and on one line, for a log."""
    line = " ".join(printable(text).split())
    return f'"{line[:_SHOWN]}{"..." if len(line) > _SHOWN else ""}"'
