"""Text that a user passes: its first character that is not UTF-8, for messages."""

from __future__ import annotations

_REMEDY = "if it is Latin-1, `iconv -f LATIN1 -t UTF-8` converts it"
_ESCAPED = range(0xDC80, 0xDD00)  # how surrogateescape decodes the bytes 0x80 to 0xff that are not UTF-8


def utf8_fault(text: str) -> str | None:
    """Return what a string has that UTF-8 cannot encode, with its place and a remedy; None if it has nothing.

    text: a string of Python, or bytes decoded with surrogateescape. Places are offsets in bytes, and lines from 1 on if
    the text has several.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        before, found = text[: error.start], text[error.start]
        place = f"at byte {len(before.encode())}"
        if "\n" in text.rstrip("\n"):
            line = before.count("\n") + 1
            place += f", in line {line}"
        if ord(found) in _ESCAPED:
            return f"got the byte 0x{ord(found) - 0xDC00:02x} {place}; {_REMEDY}"
        return f"got the unpaired surrogate {found!a} {place}"
    return None
