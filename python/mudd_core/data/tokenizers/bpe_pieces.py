"""The BPE that mudd_core trains: its form in a tokenizer.json, the limits of pieces and tokens, and their checks.

A byte-level BPE splits text into pieces before it counts pairs: a word, a number, a run of whitespace or of other
characters. The training time grows with the square of the longest piece, so longer pieces are split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mudd_core.base.types import JsonObject
from mudd_core.data.tokenizers.check import MAX_TOKEN_BYTES

LONGEST_PIECE = 4096  # bytes of text in a piece
# Bytes of text in a token. Each is a character of the byte alphabet, which needs up to two bytes in a tokenizer.json.
LONGEST_TOKEN = MAX_TOKEN_BYTES // 2
# A piece of more than LONGEST_PIECE bytes covers at least one whole block of this many characters.
_BLOCK = LONGEST_PIECE // 16
_LETTER_OR_BLANK = re.compile(r"[^\W_]|\s")


def has_long_piece(text: bytes) -> bool:
    """Return whether a UTF-8 document has a piece of more than LONGEST_PIECE bytes."""
    if len(text) <= LONGEST_PIECE:
        return False
    return any(_longest_piece(part) > LONGEST_PIECE for part in _suspects(text.decode("utf-8")))


def _suspects(text: str) -> Iterator[str]:
    """Yield the parts of a document that may contain a long piece, with their surroundings."""
    done = 0
    for at in range(0, len(text) - _BLOCK + 1, _BLOCK):
        if at >= done and _is_of_one_kind(text[at : at + _BLOCK]):
            done = at + 2 * LONGEST_PIECE
            yield text[max(0, at - LONGEST_PIECE) : done + LONGEST_PIECE]


def _is_of_one_kind(block: str) -> bool:
    return block.isspace() or block.isalpha() or block.isnumeric() or _LETTER_OR_BLANK.search(block) is None


def _longest_piece(text: str) -> int:
    """Return the length in bytes of the longest piece into which the `tokenizers` library splits text."""
    from tokenizers import pre_tokenizers  # a slow import, needed only for text with long runs

    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return max((len(piece) for piece, _ in pieces), default=0)


BYTE_LEVEL: JsonObject = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
MODEL: JsonObject = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
SPECIAL_TOKEN: JsonObject = {
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}
