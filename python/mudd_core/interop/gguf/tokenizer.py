"""A tokenizer in the fields of GGUF: `gpt2`, a byte-level BPE with merges, or `llama`, sentencepiece with scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint.gguf_file import boolean, float32s, int32s, string, strings, uint32
from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer
from mudd_core.data.tokenizers.sentencepiece_proto import Piece, PieceType, SentencePieceModel, read_model
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, Tokenizer
from mudd_core.interop.gguf.merges import adds_space, pairs_of, scores_of
from mudd_core.interop.gguf.pre_tokenizers import pre_tokenizer_name

_PREFIX = "tokenizer.ggml."
_AFFIXES = (
    "dropout",
    "continuing_subword_prefix",
    "end_of_word_suffix",
)  # settings of a BPE that llama.cpp lacks


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model by id. kind, pre: llama.cpp's names of the algorithm and of the pre-tokenizer.

    merges: of a byte-level BPE. adds_space: a space is added before text. notes: for the user.
    """

    kind: str
    pre: str
    pieces: list[Piece]
    merges: list[tuple[str, str]] = field(default_factory=list)
    adds_space: bool = False
    notes: tuple[str, ...] = ()

    def fields(self, size: int) -> dict[str, bytes]:
        """Return the encoded fields. size: tokens of the model; further ids are unused tokens.

        Raise ValueError for two equal tokens.
        """
        unused = [Piece(f"[PAD{n}]", 0.0, PieceType.UNUSED) for n in range(len(self.pieces), size)]
        pieces = [*self.pieces, *unused]
        texts = [piece.text for piece in pieces]
        if twice := next((text for text, count in Counter(texts).items() if count > 1), None):
            raise ValueError(f"expected a vocabulary of different tokens, got {twice!r} twice")
        found = {
            "model": string(self.kind),
            "pre": string(self.pre),
            "tokens": strings(texts),
            "token_type": int32s([piece.type for piece in pieces]),
        }
        if self.kind == "gpt2":
            found["merges"] = strings([" ".join(pair) for pair in self.merges])
        else:
            found["scores"] = float32s([piece.score for piece in pieces])
            found["add_space_prefix"] = boolean(self.adds_space)
        return {f"{_PREFIX}{name}": value for name, value in found.items()}

    def unknown(self) -> int | None:
        """Return the id of the token for unknown text; None if there is none."""
        return next((n for n, one in enumerate(self.pieces) if one.type == PieceType.UNKNOWN), None)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a tokenizer. Raise ValueError for one that llama.cpp would apply in another way."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _of_sentencepiece(read_model(tokenizer.data, "tokenizer.model"))
    if not isinstance(tokenizer, JsonTokenizer):
        raise ValueError(
            "expected a byte-level BPE or a sentencepiece model, got bytes, which llama.cpp lacks"
        )
    content: JsonObject = json.loads(tokenizer.data)
    model = content["model"]
    assert isinstance(model, dict)
    if model["type"] != "BPE":
        raise ValueError(f"expected a byte-level BPE or a sentencepiece model, got {model['type']}")
    for name in _AFFIXES:
        if model.get(name):
            raise ValueError(f"expected a BPE without {name}, got {model[name]}")
    return _of_json(content, model, {token: number for number, token in tokenizer.names().items()})


def _of_sentencepiece(model: SentencePieceModel) -> Vocabulary:
    for setting, given, wanted in (
        ("model_type", model.model_type, "bpe"),
        ("byte_fallback", model.byte_fallback, True),
        ("normalization_rule_name", "a table" if model.charsmap else "identity", "identity"),
        ("remove_extra_whitespaces", model.removes_spaces, False),
        ("escape_whitespaces", model.escapes_spaces, True),
        ("treat_whitespace_as_suffix", model.prefix_is_suffix, False),
    ):
        if given != wanted:
            raise ValueError(f"expected a sentencepiece model of {setting}={wanted}, got {given}")
    return Vocabulary("llama", "default", model.pieces, adds_space=model.adds_prefix)


def _of_json(content: JsonObject, model: JsonObject, ids: dict[str, int]) -> Vocabulary:
    types = dict.fromkeys(ids, PieceType.NORMAL)
    trims = False
    for added in _objects(content.get("added_tokens")):
        types[str(added["content"])] = PieceType.CONTROL if added.get("special") else PieceType.USER_DEFINED
        trims |= any(added.get(name) for name in ("lstrip", "rstrip", "single_word"))
    notes = ["llama.cpp keeps the spaces at special tokens, which this tokenizer removes"] if trims else []
    if not model.get("byte_fallback"):
        name = pre_tokenizer_name(content)
        return Vocabulary("gpt2", name, _pieces(ids, types, {}), pairs_of(model), notes=tuple(notes))
    for token in ids:
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            types[token] = PieceType.BYTE
    if (unknown := str(model.get("unk_token"))) in ids:
        types[unknown] = PieceType.UNKNOWN
    has_space, more = adds_space(content)
    if more:
        notes.append(
            "llama.cpp adds a space to each text and after each special token; this tokenizer adds none "
            "before a space"
        )
    pieces = _pieces(ids, types, scores_of(model, types))
    return Vocabulary("llama", "default", pieces, adds_space=has_space, notes=tuple(notes))


def _pieces(ids: dict[str, int], types: dict[str, PieceType], scores: dict[str, float]) -> list[Piece]:
    found = [Piece(f"[PAD{n}]", 0.0, PieceType.UNUSED) for n in range(max(ids.values()) + 1)]
    for token, number in ids.items():
        found[number] = Piece(token, scores.get(token, 0.0), types[token])
    return found


def _objects(value: Json) -> list[JsonObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def special_fields(tokenizer: Tokenizer, ends: Sequence[int], unknown: int | None) -> dict[str, bytes]:
    """Return the encoded fields of special tokens. ends: the ids that end generated text, EOS first.

    llama.cpp has three: EOS, the end of a turn and the end of a message. Ollama reads the whole list. Raise ValueError
    for a template that adds other tokens than BOS.
    """
    begin, plain = tokenizer.encode("a"), tokenizer.encode("a", bos=False)
    added = begin[: len(begin) - len(plain)]
    if len(added) > 1 or begin[len(added) :] != plain:
        raise ValueError(f"expected a tokenizer that adds at most BOS to text, got one that adds {added}")
    # Without BOS, llama.cpp would use id 11.
    bos = added[0] if added else ends[0] if tokenizer.bos_id is None else tokenizer.bos_id
    found = {"add_bos_token": boolean(bool(added)), "add_eos_token": boolean(False)}
    turn, message, *_ = [*ends[1:], None, None]
    ids = {"bos": bos, "eos": ends[0], "eot": turn, "eom": message}
    ids |= {"unknown": unknown, "padding": tokenizer.pad_id}
    found |= {f"{name}_token_id": uint32(number) for name, number in ids.items() if number is not None}
    found["eos_token_ids"] = int32s(ends)
    return {f"{_PREFIX}{name}": value for name, value in found.items()}
