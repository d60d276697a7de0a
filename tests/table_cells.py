"""Sentences of the cells in tables that are made from help texts."""

from __future__ import annotations

import re

# A semicolon ends a part of a help text, unless it is in parentheses or quotes. So does a comma before another value,
# as in `fail = stop, drop = skip`.
_PARTS = re.compile(r"(?:;|,(?= [\w.-]+ = ))\s+(?![^()]*\)|[^']*'(?:\W|$))")
# A value at the start of a sentence or after a colon, and a name before a colon.
_VALUE = re.compile(r"(?:(?<=^)|(?<=[:.] )|(?<=^and )|(?<=^or ))(?!empty )([\w.:+-]+)(?= = | and [\w.-]+ = )")
_LAST_VALUE = re.compile(r"(?<=` and )([\w.-]+)(?= = )")
_PREFIX = re.compile(r"^(?![A-Z][a-z])([\w.+-]+)(?=: )")
_NAME = re.compile(r"`|\S*[._=\d]\S*(?:\s|$)|--")


def sentences(help_text: str) -> str:
    """Return a help text as sentences: one for each part between semicolons, with values in code font.

    `0 = never; N = every N steps` becomes "`0` = never. `N` = every N steps." A name at the start of a part stays in
    lower case.
    """
    return " ".join(_sentence(part) for part in _PARTS.split(help_text)) if help_text else ""


def _sentence(part: str) -> str:
    text = _LAST_VALUE.sub(r"`\1`", _VALUE.sub(r"`\1`", _PREFIX.sub(r"`\1`", part)))
    if not _NAME.match(text):
        text = text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
