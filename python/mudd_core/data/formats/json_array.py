"""Read the objects of a file that is one JSON array, as in Alpaca, one after another in bounded memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Json
from mudd_core.data.formats.bounded import LONGEST_RECORD
from mudd_core.data.formats.packed import conversion

_BLOCK = 1 << 16  # bytes of one read, or of the unread rest if that is larger
_START = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
_MARK = "\ufeff"  # a byte order mark
_SPACE = re.compile(r"[ \t\r\n]*")


def is_array_start(head: bytes) -> bool:
    """Return whether a file with this start is an array of objects."""
    return _START.match(head) is not None


class Elements:
    """The elements of the array in an open file. Raise FormatError with the position of any damage."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        # The text that was read, the position in it, and the byte offset in the file.
        self._text, self._at, self._offset = "", 0, 0

    def __iter__(self) -> Iterator[tuple[Json, int]]:
        """Yield each element and the byte offset at which it starts."""
        if self._peek() == _MARK:
            self._advance(self._at + 1)
        self._take("[", 1)
        number = 1
        while True:
            self._peek()
            offset = self._offset
            yield self._element(number), offset
            if self._take(",]", number) == "]":
                break
            number += 1
        if self._peek():
            raise self._fault(number, "expected nothing after the array")

    def _take(self, wanted: str, number: int) -> str:
        """Return the next character, which must be one of `wanted`."""
        found = self._peek()
        if not found or found not in wanted:
            shown = repr(found) if found else "the end of the file"
            raise self._fault(number, f"expected {' or '.join(wanted)} after it, got {shown}")
        self._advance(self._at + 1)
        return found

    def _advance(self, to: int) -> None:
        self._offset += len(self._text[self._at : to].encode())
        self._at = to

    def _peek(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._advance(found.end() if found else self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _element(self, number: int) -> Json:
        value: Json
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._at)
            except RecursionError as error:
                raise self._fault(number, str(error)) from None
            except ValueError as error:
                if len(self._text) - self._at > LONGEST_RECORD:
                    reason = f"it has more than {LONGEST_RECORD >> 20} MiB; split its document into several"
                    raise self._fault(number, reason) from None
                if not self._more():
                    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                    raise self._fault(number, f"it is not JSON: {reason}") from None
            else:
                self._advance(end)
                return value

    def _more(self) -> bool:
        """Read more of the file; return False at its end."""
        waiting = self._text[self._at :]
        data = self._file.read(max(_BLOCK, len(waiting)))
        try:
            self._text, self._at = waiting + self._decoder.decode(data, final=not data), 0
        except UnicodeDecodeError as error:
            offset = self._offset + len(waiting.encode()) + error.start
            raise FormatError(
                str(self._path), offset, f"it is not UTF-8 ({error.reason}){conversion(self._path)}"
            ) from None
        return bool(data)

    def _fault(self, number: int, reason: str) -> FormatError:
        return FormatError(str(self._path), self._offset, f"element {number:,} of the array: {reason}")
