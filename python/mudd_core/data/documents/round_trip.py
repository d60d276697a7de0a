"""Check that documents survive encoding and decoding. If text is lost, the reported bits per byte are too low."""

from __future__ import annotations

import json

from mudd_core.base.regular_files import read_bytes
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.documents.source import Frame
from mudd_core.data.sources.corpus import Split
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer, Ids, JsonTokenizer, Tokenizer

_MOST_BYTES = 8 << 20  # bytes of one split's documents that one process decodes
_EACH_OF = 256  # the first 256 documents are all checked, then one of every _STRIDE
_STRIDE = 16


class RoundTrip:
    """A check that decodes some documents of each split and counts those that differ."""

    def __init__(self, tokenizer: Tokenizer, frame: Frame, counts: list[int]) -> None:
        """Create the check. counts: the numbers of documents that earlier parts of the build checked and lost."""
        # Only the pipeline `text` reports bits per byte, and only foreign tokenizers lose text.
        own = isinstance(tokenizer, ByteTokenizer) or (
            isinstance(tokenizer, JsonTokenizer) and tokenizer.has_own_form
        )
        self._tokenizer = None if own or frame != "end" else tokenizer
        self.counts = counts
        self._seen: dict[Split, int] = {"train": 0, "valid": 0}
        self._bytes: dict[Split, int] = {"train": 0, "valid": 0}

    def look_at(self, split: Split, text: bytes, ids: Ids) -> None:
        """Check the document if it is one of the samples. ids: the ids of the document, with EOS."""
        number = self._seen[split]
        self._seen[split] += 1
        if self._tokenizer is None or self._bytes[split] >= _MOST_BYTES:
            return
        if number < _EACH_OF or number % _STRIDE == 0:
            self._bytes[split] += len(text)
            self.counts[0] += 1
            self.counts[1] += not _is_same(self._tokenizer.decode(ids[:-1].tolist()), text.decode("utf-8"))


def _is_same(decoded: str, text: str) -> bool:
    """Return whether two strings are equal, except for one leading blank, which some tokenizers add or remove."""
    return decoded.removeprefix(" ") == text.removeprefix(" ")


def lost_documents(cache: TokenCache) -> tuple[int, int]:
    """Return how many documents the build of a cache has checked, and how many of them were lost."""
    try:
        facts = json.loads(read_bytes(cache.path / "cache.json"))
        return int(facts.get("checked_documents", 0)), int(facts.get("lost_documents", 0))
    except (OSError, ValueError, TypeError, AttributeError):  # the seal covers only the ids
        return 0, 0


def loss_note(cache: TokenCache) -> str:
    """Return the warning about a tokenizer that loses text; an empty string if all checked documents survive."""
    checked, lost = lost_documents(cache)
    if not lost:
        return ""
    return (
        f"[data.tokenizer] {lost:,} of {checked:,} documents ({lost / checked:.1%}) change when "
        "encoded and decoded: the tokenizer loses text (unknown characters, case or blanks), so no "
        "bits per byte are printed; compare losses of this tokenizer alone, or use a byte-level "
        "tokenizer"
    )
