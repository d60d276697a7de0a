"""Tokenizers, which turn text into ids and back. All kinds share one interface; source.py finds the one of a config.

`bytes`: ids 0..255 are the bytes, and 256 is EOS. `bpe`: a byte-level BPE, trained once on the training documents by
bpe_training.py; EOS is id 0. A tokenizer.json: any other tokenizer, after a check. sentencepiece.py implements a fourth
kind. The `tokenizers` library is imported only when text is encoded; decoding a byte-level vocabulary needs no library.

Text never becomes EOS: `<|endoftext|>` in a document is encoded as ordinary bytes, unless SpecialIds.names selects the
rule of the original programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError
from mudd_core.data.tokenizers.check import TokenizerJson, check_tokenizer_json
from mudd_core.data.tokenizers.special_tokens import (
    END_OF_TEXT,
    ShownByIds,
    SpecialIds,
    end_of_document,
    usual_begin,
)
from mudd_core.data.tokenizers.streams import Bytes, Growing, TextStream
from mudd_core.data.tokenizers.trial import has_own_form, try_in_child

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

LOWEST_BPE_SIZE = 257  # 256 bytes and EOS

Ids = npt.NDArray[np.int64]
T = TypeVar("T")  # the result of a call of the library


class Tokenizer(Protocol):
    """The interface of a tokenizer. bos_id, pad_id: None if it has none.

    stop_ids: further tokens that end generated text, in addition to eos_id.
    """

    vocab_size: int
    bos_id: int | None
    eos_id: int
    pad_id: int | None
    stop_ids: frozenset[int]

    @property
    def ids_below(self) -> int:
        """The bound of the ids to sample; 0: all ids of the model, as in transformers, whatever text they have."""

    def encode(self, text: str, *, bos: bool = True, special_tokens: bool = True) -> list[int]:
        """Return the ids of a string, without EOS.

        A tokenizer that came with weights (for_prompts) returns the same ids as in transformers. bos: include the BOS
        token if the template adds one. special_tokens: names of special tokens in the text become these tokens.
        """

    def special_ids(self) -> set[int]:
        """Return the ids of the special tokens."""

    def for_prompts(self, stop_ids: Iterable[int] = ()) -> Tokenizer:
        """Return the tokenizer for prompts to the weights that it came with; `encode` then works as in transformers."""

    def encode_documents(self, texts: Sequence[bytes], *, template: bool = False) -> list[Ids]:
        """Return the ids of UTF-8 documents without EOS. template: add the ids of the tokenizer's own template."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids. Invalid UTF-8 becomes U+FFFD, EOS becomes `<|endoftext|>`."""

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        """Return a stream that turns ids into text one by one.

        after: the ids before the first one, such as a prompt; their text is not returned.
        """


@runtime_checkable
class WithPlaces(Protocol):
    """A tokenizer that reports the characters of the text for each id."""

    def encode_with_places(self, texts: Sequence[str]) -> list[tuple[Ids, Ids]]:
        """Return for each text its ids [n] and their characters [n, 2]: first, end. The template is not applied."""


class _ByteVocabulary(ShownByIds):
    """The decoder for vocabularies whose tokens are byte strings."""

    _pieces: list[bytes]

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one id; see ShownByIds.known."""
        return b"".join(self._pieces[i] for i in self.known([token]))

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._pieces[i] for i in self.known(ids)).decode("utf-8", "replace")

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        return Bytes(self.token_bytes)


class ByteTokenizer(_ByteVocabulary):
    """A tokenizer of plain bytes and one EOS id."""

    vocab_size = 257
    bos_id: int | None = 256
    eos_id = 256
    pad_id: int | None = None

    def __init__(self) -> None:
        self._pieces = [bytes([b]) for b in range(256)] + [END_OF_TEXT.encode()]

    def encode(self, text: str, *, bos: bool = True, special_tokens: bool = True) -> list[int]:
        return list(text.encode("utf-8"))

    def special_ids(self) -> set[int]:
        """Return the id of EOS."""
        return {self.eos_id}

    def for_prompts(self, stop_ids: Iterable[int] = ()) -> ByteTokenizer:
        return self

    def encode_documents(self, texts: Sequence[bytes], *, template: bool = False) -> list[Ids]:
        return [np.frombuffer(t, np.uint8).astype(np.int64) for t in texts]

    def encode_with_places(self, texts: Sequence[str]) -> list[tuple[Ids, Ids]]:
        found = []
        for text in texts:
            numbers = np.repeat(np.arange(len(text)), [len(character.encode()) for character in text])
            places = np.stack([numbers, numbers + 1], axis=1).astype(np.int64)
            found.append((np.array(self.encode(text), np.int64), places))
        return found


class JsonTokenizer(_ByteVocabulary):
    """A tokenizer.json, run by the `tokenizers` library. `file`: its name in messages.

    special: ids that tokenizer_config.json names; the others follow from the names of tokens. prompts: True for weights
    that the tokenizer came with; see Tokenizer.for_prompts.
    """

    def __init__(
        self, data: bytes, file: str, special: SpecialIds | None = None, prompts: bool = False
    ) -> None:
        content = check_tokenizer_json(data, file)
        self._data = data
        self._file = file
        self._library: Library | None = None
        ids, special = vocabulary(content), special or SpecialIds()
        self.vocab_size = max(ids.values()) + 1
        self.eos_id = end_of_document(ids, file) if special.eos is None else special.eos
        self.bos_id = usual_begin(ids) if special.bos is None else special.bos
        self.pad_id = special.pad
        self._special, self._prompts = special, prompts
        self._reads_names = bool(special.names) or prompts
        self._is_byte_level = _is_byte_level(content)
        self.has_own_form = has_own_form(content)  # loads without a trial, and does not lose text
        self._pieces = _pieces_of(content, ids, self.vocab_size) if self._is_byte_level else []

    @property
    def data(self) -> bytes:
        """The content of the tokenizer.json."""
        return self._data

    def names(self) -> dict[int, str]:
        """Return the token of each id."""
        return {i: token for token, i in vocabulary(check_tokenizer_json(self._data, self._file)).items()}

    def special_ids(self) -> set[int]:
        """Return the ids of the special tokens."""
        added = check_tokenizer_json(self._data, self._file).get("added_tokens") or []
        return {token["id"] for token in added if token.get("special")}

    def ids_of(self, names: Iterable[str]) -> set[int]:
        """Return the ids of the tokens among these names."""
        known = vocabulary(check_tokenizer_json(self._data, self._file))
        return {known[name] for name in names if name in known}

    def _loaded(self) -> Library:
        if self._library is None:
            import tokenizers  # a slow import, needed only to encode text

            if not self.has_own_form:
                try_in_child(self._data, self._file)
            library = self._guard(lambda: tokenizers.Tokenizer.from_str(self._data.decode("utf-8")))
            library.no_truncation()
            library.no_padding()
            library.encode_special_tokens = (
                not self._reads_names
            )  # True: special tokens' names are encoded as text
            self._library = library
        return self._library

    def _guard(self, call: Callable[[], T]) -> T:
        """Return the result of a library call; raise FormatError if the library rejects its input."""
        try:
            return call()
        except BaseException as e:
            if isinstance(e, Exception) or type(e).__name__ == "PanicException":
                raise FormatError(self._file, 0, f"the tokenizers library refuses it: {e}") from None
            raise

    def encode(self, text: str, *, bos: bool = True, special_tokens: bool = True) -> list[int]:
        # Raise ValueError for an unpaired surrogate, for which the library would raise another error.
        text.encode("utf-8")
        library = self._loaded()
        # True: the names of special tokens are encoded as text.
        library.encode_special_tokens = not (self._reads_names and special_tokens)
        try:
            encoded = self._guard(lambda: library.encode(text, add_special_tokens=bos and self._prompts))
        finally:
            library.encode_special_tokens = not self._reads_names
        ids, added = list(encoded.ids), list(encoded.special_tokens_mask)
        while ids and added[len(ids) - 1] and self._prompts and len(ids) > 1:
            ids.pop()  # remove the EOS that the template adds, because the text continues
        return ids

    def for_prompts(self, stop_ids: Iterable[int] = ()) -> JsonTokenizer:
        own = self.has_own_form  # no other program has this form of tokenizer
        made = copy(self) if own else JsonTokenizer(self._data, self._file, self._special, prompts=True)
        made.stop_ids, made.of_weights = frozenset(stop_ids), True
        return made

    def reading_names(self) -> JsonTokenizer:
        """Return the same tokenizer, but names of special tokens in text are these tokens, as in conversations."""
        return JsonTokenizer(self._data, self._file, replace(self._special, names=1))

    def encode_documents(self, texts: Sequence[bytes], *, template: bool = False) -> list[Ids]:
        library = self._loaded()
        lines = [t.decode("utf-8") for t in texts]
        encoded = self._guard(lambda: library.encode_batch_fast(lines, add_special_tokens=template))
        return [np.array(e.ids, np.int64) for e in encoded]

    def encode_with_places(self, texts: Sequence[str]) -> list[tuple[Ids, Ids]]:
        library = self._loaded()
        # A post-processor may exclude whitespace from the offsets.
        processor, library.post_processor = library.post_processor, None
        try:
            encoded = self._guard(lambda: library.encode_batch([*texts], add_special_tokens=False))
        finally:
            library.post_processor = processor
        return [(np.array(e.ids, np.int64), np.array(e.offsets, np.int64).reshape(-1, 2)) for e in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        if self._is_byte_level:
            return super().decode(ids)
        wanted, library = self.known(ids), self._loaded()
        text: str = self._guard(lambda: library.decode(wanted, skip_special_tokens=False))
        return text

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        return super().stream() if self._is_byte_level else Growing(self, after)


def byte_alphabet() -> dict[str, int]:
    """Return the map from character to byte of byte-level vocabularies.

    Printable Latin-1 characters map to themselves; the others start at U+0100.
    """
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(256 + i): b for i, b in enumerate(others)}


def vocabulary(content: TokenizerJson) -> dict[str, int]:
    """Return token -> id of a checked tokenizer.json, including added tokens."""
    vocab = content["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {item[0]: i for i, item in enumerate(vocab)}
    ids.update({t["content"]: t["id"] for t in content.get("added_tokens") or []})
    return ids


def _is_byte_level(content: TokenizerJson) -> bool:
    decoder = content.get("decoder") or {}
    steps = decoder.get("decoders") or [] if decoder.get("type") == "Sequence" else [decoder]
    return content["model"]["type"] == "BPE" and [s.get("type") for s in steps] == ["ByteLevel"]


def _pieces_of(content: TokenizerJson, ids: dict[str, int], size: int) -> list[bytes]:
    """Return the bytes of each id. Added tokens, and tokens outside the byte alphabet, are encoded in UTF-8."""
    alphabet = byte_alphabet()
    added = {t["content"] for t in content.get("added_tokens") or []}
    pieces = [b""] * size
    for token, i in ids.items():
        plain = token in added or any(c not in alphabet for c in token)
        pieces[i] = token.encode("utf-8", "replace") if plain else bytes(alphabet[c] for c in token)
    return pieces
