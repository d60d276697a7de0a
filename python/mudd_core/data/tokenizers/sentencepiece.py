"""Tokenizers of the sentencepiece library: a tokenizer.model, as LLaMA, Mixtral and T5 have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.packages import needed
from mudd_core.base.types import Json
from mudd_core.data.tokenizers.special_tokens import END_OF_TEXT, ShownByIds, SpecialIds, flag_of, named_ids
from mudd_core.data.tokenizers.streams import Growing, TextStream
from mudd_core.data.tokenizers.tokenizer import Ids

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

_BEGINS = ("LlamaTokenizer", "LlamaTokenizerFast")  # tokenizer classes whose template adds BOS
_ENDS = ("T5Tokenizer", "T5TokenizerFast")
T = TypeVar("T")  # the result of a call of the library


def _loaded(data: bytes, file: str) -> SentencePieceProcessor:
    library = needed("sentencepiece", "[data] tokenizer", f"to read {file}")
    try:
        model: SentencePieceProcessor = library.SentencePieceProcessor()
        model.LoadFromSerializedProto(data)
        if not data or model.get_piece_size() < 1:
            raise ValueError("it has no pieces")
        for number in range(model.get_piece_size()):
            model.id_to_piece(number)  # raises an error if a piece is not valid UTF-8
        return model
    except Exception as error:
        raise FormatError(
            file,
            0,
            f"not a sentencepiece model: {str(error)[:200]}; name the tokenizer.json of its folder, or the folder",
        ) from None


def special_of_model(data: bytes, file: str, config: Mapping[str, Json], config_file: str) -> SpecialIds:
    """Return the ids and the template from tokenizer_config.json, or the model's own ids if it names none."""
    model = _loaded(data, file)
    named = named_ids(config, {model.id_to_piece(i): i for i in range(model.get_piece_size())}, config_file)
    kind = config.get("tokenizer_class")
    return SpecialIds(
        named.bos,
        named.eos,
        named.pad,
        int(flag_of(config, "add_bos_token", kind in _BEGINS, config_file)),
        int(flag_of(config, "add_eos_token", kind in _ENDS, config_file)),
    )


class SentencePieceTokenizer(ShownByIds):
    """A sentencepiece model. `file`: the name of the model's file in messages."""

    def __init__(
        self, data: bytes, file: str, special: SpecialIds | None = None, prompts: bool = False
    ) -> None:
        self._model, self._file = _loaded(data, file), file
        special = special or SpecialIds()
        self._special, self._prompts = special, prompts
        self.vocab_size = int(self._model.get_piece_size())
        self.bos_id = self._one(special.bos, self._model.bos_id())
        self.pad_id = self._one(special.pad, self._model.pad_id())
        end = self._one(special.eos, self._model.eos_id())
        if end is None:
            raise UserError(
                f"[data.tokenizer] {file}: no end-of-document token; name eos_token in a tokenizer_config.json next "
                "to it, and the folder in data.tokenizer"
            )
        self.eos_id: int = end
        self._names = self._special_pieces() if special.names or prompts else {}
        self._begin = [self.bos_id] if special.begins and self.bos_id is not None else []
        self._end = [self.eos_id] if special.ends else []
        self._bytes = {
            i: int(self.piece(i)[1:-1], 16) for i in range(self.vocab_size) if self._model.is_byte(i)
        }
        self._unknown_byte = [
            i for byte in "\ufffd".encode() for i, own in self._bytes.items() if own == byte
        ]

    @property
    def data(self) -> bytes:
        """The content of the model's file."""
        return bytes(self._model.serialized_model_proto())

    @property
    def template(self) -> tuple[bool, bool]:
        """Return whether the template of the original program adds BOS and EOS."""
        return bool(self._begin), bool(self._end)

    def piece(self, token: int) -> str:
        """Return the piece of an id."""
        return str(self._model.id_to_piece(token))

    def _one(self, named: int | None, own: int) -> int | None:
        if named is None:
            return own if own >= 0 else None
        if not 0 <= named < self.vocab_size:
            raise FormatError(self._file, 0, f"id {named} is outside its vocabulary of {self.vocab_size}")
        return named

    def special_ids(self) -> set[int]:
        """Return the ids of BOS, EOS, padding and the unknown token."""
        ids = (self.bos_id, self.eos_id, self.pad_id, self._model.unk_id())
        return {i for i in ids if i is not None and i >= 0}

    def _special_pieces(self) -> dict[str, int]:
        """Return the names of tokens that are recognised anywhere in text."""
        return {self._model.id_to_piece(i): i for i in self.special_ids()}

    def encode(self, text: str, *, bos: bool = True, special_tokens: bool = True) -> list[int]:
        """Return the ids of a string; see Tokenizer."""
        text.encode("utf-8")
        begin = self._begin if bos and self._prompts else []
        return [*begin, *self._all_ids([text], special_tokens)[0]]

    def for_prompts(self, stop_ids: Iterable[int] = ()) -> SentencePieceTokenizer:
        """Return the tokenizer for prompts; see Tokenizer."""
        made = SentencePieceTokenizer(self.data, self._file, self._special, prompts=True)
        made.stop_ids, made.of_weights = frozenset(stop_ids), True
        return made

    def _all_ids(self, texts: list[str], names: bool = True) -> list[list[int]]:
        """Return the ids of strings. Text between special tokens is encoded separately, as LlamaTokenizer does."""
        if not names or not any(name in text for name in self._names for text in texts):
            whole: list[list[int]] = self._guard(lambda: self._model.encode(texts))
            return whole
        between = re.compile("(" + "|".join(map(re.escape, self._names)) + ")")
        parts = [[part for part in between.split(text) if part] for text in texts]
        ids = iter(
            self._guard(lambda: self._model.encode([p for of in parts for p in of if p not in self._names]))
        )
        return [
            [i for part in of for i in ([self._names[part]] if part in self._names else next(ids))]
            for of in parts
        ]

    def _guard(self, call: Callable[[], T]) -> T:
        """Return the result of a library call; raise FormatError if the call fails because of the model."""
        try:
            return call()
        except (RuntimeError, ValueError) as error:
            raise FormatError(self._file, 0, f"the sentencepiece library refuses it: {error}") from None

    def encode_documents(self, texts: Sequence[bytes], *, template: bool = False) -> list[Ids]:
        """Return the ids of UTF-8 documents. template: with the BOS and EOS that the original program adds."""
        begin, end = (self._begin, self._end) if template else ([], [])
        lines = [text.decode("utf-8") for text in texts]
        return [np.array([*begin, *ids, *end], np.int64) for ids in self._all_ids(lines)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; EOS becomes `<|endoftext|>`."""
        wanted = self.known(ids)
        parts: list[list[int]] = [[]]
        for token in wanted:
            if token == self.eos_id:
                parts.append([])
            else:
                parts[-1].append(token)
        texts: list[str] = self._guard(
            lambda: [self._model.decode([*self._whole_characters(part)]) for part in parts]
        )
        return END_OF_TEXT.join(texts)

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        """Return a stream that turns ids into text one by one."""
        return Growing(self, after)

    def _whole_characters(self, ids: Iterable[int]) -> Iterator[int]:
        """Replace each byte token by U+FFFD in a run of byte tokens that is not UTF-8.

        transformers decodes a run as a whole; the library would keep its valid characters.
        """
        for is_byte, run in groupby(ids, self._bytes.__contains__):
            found = list(run)
            text = bytes(self._bytes[i] for i in found) if is_byte else b""
            yield from found if _is_utf8(text) else self._unknown_byte * len(text)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
