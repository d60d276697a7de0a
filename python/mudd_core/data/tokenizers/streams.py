"""Turn ids into text one by one."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

_CONTEXT = 8  # earlier ids that the decoder gets, because it drops the space of the first token only
_MOST = 64  # ids that the decoder gets at most, unless a character is incomplete
_LONGEST_CHARACTER = 4  # bytes of UTF-8


class TextStream(Protocol):
    """A stream of ids that returns their text in whole characters."""

    def __call__(self, token: int) -> str:
        """Return the text that becomes complete with one more id."""

    def end(self) -> str:
        """Return the rest of the text after the last id: U+FFFD for bytes that are no character."""


class Decodes(Protocol):
    """The method of a tokenizer that a stream needs."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""


class Bytes:
    """A stream for vocabularies of byte strings."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, token: int) -> str:
        return self._decoder.decode(self._bytes_of(int(token)))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


class Growing:
    """A stream for decoders that depend on neighbours: it decodes the last ids and drops the text returned before."""

    def __init__(self, tokenizer: Decodes, after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids, text = _context(tokenizer, after)
        self._given, self._held = len(text), ""

    def __call__(self, token: int) -> str:
        self._ids.append(int(token))
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd"):  # may be half a character
            self._held = text[self._given :]
            return ""
        new, self._held = text[self._given :], ""
        if len(self._ids) >= _MOST:
            self._ids, text = _context(self._tokenizer, self._ids)
        self._given = len(text)
        return new

    def end(self) -> str:
        self._given += len(self._held)
        held, self._held = self._held, ""
        return held


def _context(tokenizer: Decodes, after: Sequence[int]) -> tuple[list[int], str]:
    """Return the last of the earlier ids and their text."""
    ids, text = [int(token) for token in after], ""
    # A byte token in the middle of a character corrupts the text of all following byte tokens.
    for length in range(_CONTEXT, _CONTEXT + _LONGEST_CHARACTER):
        text = tokenizer.decode(ids[-length:]) if ids else ""
        if not text.startswith("\ufffd") or length >= len(ids):
            return ids[-length:], text
    return ids[-_CONTEXT:], tokenizer.decode(ids[-_CONTEXT:])
