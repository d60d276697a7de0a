"""Fuzz targets for the files of tokenizers, and for their fields in GGUF."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from checked import require

from mudd_core.base.errors import FormatError


def run_tokenizer(data: bytes, _folder: Path) -> None:
    """Check a tokenizer.json; load it with the library if its form needs no trial process."""
    from mudd_core.data.tokenizers.tokenizer import JsonTokenizer
    from mudd_core.data.tokenizers.trial import has_own_form

    tokenizer = JsonTokenizer(data, "tokenizer.json")
    require(0 <= tokenizer.eos_id < tokenizer.vocab_size, "the end of a document is in the vocabulary")
    if has_own_form(json.loads(data)):
        ids = tokenizer.encode("the river é\n\t x_1 = 2 " + data[:200].decode("utf-8", "ignore"))
        require(all(0 <= i < tokenizer.vocab_size for i in ids), "ids are in the vocabulary")
        tokenizer.decode(range(min(tokenizer.vocab_size, 1000)))


def run_tokenizer_folder(data: bytes, folder: Path) -> None:
    """Read vocab.json, merges.txt, added_tokens.json and tokenizer_config.json, given as keys of one JSON object."""
    from mudd_core.data.tokenizers.source import find_tokenizer, stored_tokenizer

    try:
        members = {str(name): json.dumps(value) for name, value in json.loads(data).items()}
        members["merges.txt"] = "\n".join(json.loads(members.get("merges.txt", "[]")))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    made = folder / "tokenizer"
    made.mkdir(exist_ok=True)
    for name in ("vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json"):
        (made / name).unlink(missing_ok=True)
        if name in members:
            (made / name).write_bytes(members[name].encode("utf-8", "surrogatepass"))
    source = find_tokenizer(str(made), 0)
    tokenizer = stored_tokenizer(source.identity, source.data, source.file)
    for number in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id):
        require(number is None or 0 <= number < tokenizer.vocab_size, "its ids are in the vocabulary")


def run_sentencepiece(data: bytes, _folder: Path) -> None:
    """Check a tokenizer.model: if its library loads it, ids are in the vocabulary and decode to text.

    The reader of its pieces finds as many as the library, or raises FormatError.
    """
    from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer
    from mudd_core.data.tokenizers.sentencepiece_proto import read_model

    pieces = None
    with contextlib.suppress(FormatError):
        pieces = len(read_model(data, "tokenizer.model").pieces)
    tokenizer = SentencePieceTokenizer(data, "tokenizer.model")
    require(pieces in (None, tokenizer.vocab_size), "both readers find the same number of pieces")
    ids = tokenizer.encode("the river é\n\t x_1 = 2")
    require(all(0 <= i < tokenizer.vocab_size for i in ids), "ids are in the vocabulary")
    tokenizer.decode(range(min(tokenizer.vocab_size, 500)))


def run_gguf_tokenizer(data: bytes, _folder: Path) -> None:
    """Write the fields of a tokenizer.json in GGUF, or refuse it: one token for each id of the vocabulary."""
    from mudd_core.data.tokenizers.tokenizer import JsonTokenizer

    _write_vocabulary(JsonTokenizer(data, "tokenizer.json"))


def run_gguf_sentencepiece(data: bytes, _folder: Path) -> None:
    """Write the fields of a tokenizer.model in GGUF, or refuse it."""
    from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer

    _write_vocabulary(SentencePieceTokenizer(data, "tokenizer.model"))


def _write_vocabulary(tokenizer: Any) -> None:
    from mudd_core.interop.gguf.tokenizer import vocabulary_of

    found = vocabulary_of(tokenizer)
    require(len(found.pieces) == tokenizer.vocab_size, "a token for each id")
    encoded = found.fields(min(tokenizer.vocab_size + 3, 2000))
    require(all(isinstance(value, bytes) for value in encoded.values()), "encoded fields")
