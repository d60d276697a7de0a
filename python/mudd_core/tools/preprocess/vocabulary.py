"""The tokenizer of the rows, with the special tokens that it adds on its own, and its BOS and EOS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_text
from mudd_core.data.special_tokens import END_NAMES
from mudd_core.data.tokenizer_check import check_tokenizer_json
from mudd_core.data.tokenizer_source import read_tokenizer_json

_BEGIN_NAMES = ("<s>", "<bos>", "<|bos|>", "<|begin_of_text|>", "[BOS]", "<|startoftext|>")


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer that can be sent to another process. data: its tokenizer.json; file: its name in messages."""

    data: bytes
    file: str
    bos: int
    eos: int

    def encoder(self) -> Encoder:
        """A function from texts to ids."""
        return Encoder(self)


class Encoder:
    """Encodes texts as the tokenizer's own template has it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import tokenizers

        self._file = vocabulary.file
        library = tokenizers.Tokenizer.from_str(vocabulary.data.decode("utf-8"))
        library.no_truncation()
        library.no_padding()
        self._library = library

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            return [one.ids for one in self._library.encode_batch_fast(list(texts))]
        except BaseException as error:
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise FormatError(self._file, 0, f"the tokenizers library refuses a text: {error}") from None
            raise


def read_vocabulary(name: str) -> Vocabulary:
    """The tokenizer in a folder or in a tokenizer.json; UserError where it has no BOS or no EOS."""
    path = local(name, "[preprocess] --tokenizer-model")
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"[preprocess] --tokenizer-model: expected a folder with tokenizer.json, or such a file, got '{name}'"
        )
    data = read_tokenizer_json(str(file))
    content = check_tokenizer_json(data, str(file))
    ids = _ids(content)
    settings = _settings(file.parent / "tokenizer_config.json") if path.is_dir() else {}
    eos = _named(settings, "eos_token", ids) or _first(END_NAMES, ids)
    bos = _named(settings, "bos_token", ids) or _first(_BEGIN_NAMES, ids)
    if bos is None and eos is not None and "<|endoftext|>" in ids:
        bos = (ids["<|endoftext|>"],)  # GPT-2's one special token is both
    for kind, found in (("BOS", bos), ("EOS", eos)):
        if found is None:
            raise UserError(
                f"[preprocess] --tokenizer-model: {name} has no {kind} token; every row needs one. Name it in "
                "tokenizer_config.json beside it"
            )
    assert bos is not None and eos is not None
    return Vocabulary(data, str(file), bos[0], eos[0])


def _ids(content: dict[str, Any]) -> dict[str, int]:
    vocab = content["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {item[0]: i for i, item in enumerate(vocab)}
    return ids | {token["content"]: token["id"] for token in content.get("added_tokens") or []}


def _settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(str(file), 0, f"expected JSON: {error}") from None
    return found if isinstance(found, dict) else {}


def _named(settings: dict[str, Any], name: str, ids: dict[str, int]) -> tuple[int] | None:
    token = settings.get(name)
    token = token.get("content") if isinstance(token, dict) else token
    return (ids[token],) if isinstance(token, str) and token in ids else None


def _first(names: Sequence[str], ids: dict[str, int]) -> tuple[int] | None:
    return next(((ids[name],) for name in names if name in ids), None)
