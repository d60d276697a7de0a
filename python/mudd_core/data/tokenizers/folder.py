"""Read tokenizers from folders: tokenizer.json, else vocab.json with merges.txt, else a sentencepiece model."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import open_binary
from mudd_core.base.types import Json, JsonObject
from mudd_core.data.tokenizers.bpe_pieces import BYTE_LEVEL, MODEL, SPECIAL_TOKEN
from mudd_core.data.tokenizers.check import MAX_BYTES, check_tokenizer_json
from mudd_core.data.tokenizers.special_tokens import SpecialIds, flag_of, named_ids, read_config, token_of
from mudd_core.data.tokenizers.tokenizer import vocabulary

CONFIG = "tokenizer_config.json"
MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
_MAP = "special_tokens_map.json"
_TOKENS = ("bos_token", "eos_token", "pad_token")
FILES = ("tokenizer.json", CONFIG, "vocab.json", "merges.txt", *MODELS, "added_tokens.json", _MAP)
# Classes of tokenizers whose vocab.json and merges.txt are byte-level, as in GPT-2.
_GPT2_CLASSES = (None, "GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizer", "GPTNeoXTokenizerFast")


def read_limited(path: str, wanted: str) -> bytes:
    """Return the content of a file of at most 100 MiB. wanted: the accepted values of data.tokenizer, for messages.

    Raise UserError if it cannot be read, and FormatError if it is larger.
    """
    try:
        with open_binary(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise FormatError(path, 0, f"{size} bytes: a tokenizer's file has at most {MAX_BYTES}")
            return file.read()
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise UserError(f"[data.tokenizer] expected {wanted}, got {path!r}: {reason}") from None


def config_of(folder: Path) -> JsonObject:
    """Return the folder's tokenizer_config.json, with missing tokens from special_tokens_map.json. It may be empty."""
    found: JsonObject = {}
    for name in (_MAP, CONFIG):
        file = folder / name
        if file.is_file():
            members = read_config(read_limited(str(file), f"a {name}"), str(file))
            found |= members if name == CONFIG else {key: members[key] for key in _TOKENS if key in members}
    return found


def special_of_json(data: bytes, config: JsonObject, folder: Path) -> SpecialIds:
    """Return the ids of the special tokens that the folder's config names, by the vocabulary of its tokenizer.json."""
    if not any(f"{name}_token" in config for name in ("bos", "eos", "pad")):
        return SpecialIds()
    ids = vocabulary(check_tokenizer_json(data, str(folder / "tokenizer.json")))
    return named_ids(config, ids, str(folder / CONFIG))


def joined(folder: Path, config: JsonObject) -> bytes:
    """Return the tokenizer.json of a byte-level vocab.json and merges.txt; raise FormatError for other files."""
    kind = config.get("tokenizer_class")
    if kind not in _GPT2_CLASSES:
        raise UserError(
            f"[data.tokenizer] {folder}: expected vocab.json and merges.txt of GPT2Tokenizer, got files of {kind}; "
            "save the folder with a tokenizer.json (tokenizers or transformers write one)"
        )
    vocab = read_config(_read(folder / "vocab.json"), str(folder / "vocab.json"))
    added = _added(folder, config, vocab)
    prefix = {
        **BYTE_LEVEL,
        "add_prefix_space": flag_of(config, "add_prefix_space", False, str(folder / CONFIG)),
    }
    model = {
        **MODEL,
        "vocab": vocab,
        "merges": _merges(folder / "merges.txt"),
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": prefix,
        "post_processor": None,
        "decoder": {**BYTE_LEVEL, "add_prefix_space": True},
        "model": model,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _read(path: Path) -> bytes:
    return read_limited(str(path), "a folder with vocab.json and merges.txt")


def _merges(file: Path) -> list[list[str]]:
    try:
        lines = _read(file).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError(str(file), error.start, "not UTF-8") from None
    pairs, offset = [], 0
    for number, line in enumerate(lines):
        words = line.rstrip("\r").split(" ")
        if line.strip() and not (number == 0 and line.startswith("#version")):
            if len(words) != 2:
                raise FormatError(
                    str(file), offset, f"line {number + 1} is not a pair of tokens: {line[:80]!r}"
                )
            pairs.append(words)
        offset += len(line.encode()) + 1
    return pairs


def _added(folder: Path, config: JsonObject, vocab: JsonObject) -> list[Json]:
    """Return the special tokens of the folder: from added_tokens.json, from the config, and <|endoftext|>."""
    file = folder / "added_tokens.json"
    found = read_config(_read(file), str(file)) if file.is_file() else {}
    decoder = config.get("added_tokens_decoder")
    for number, entry in (decoder if isinstance(decoder, dict) else {}).items():
        token = token_of({"token": entry}, "token", str(folder / CONFIG))
        if token is not None and number.isdecimal() and len(number) < 10:
            found.setdefault(token, int(number))
    named = [token_of(config, f"{name}_token", str(folder / CONFIG)) for name in ("bos", "eos", "pad")]
    for token in (*named, "<|endoftext|>"):
        if token is not None and token in vocab:
            found.setdefault(token, vocab[token])
    numbers: list[tuple[int, str]] = []
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(str(file), 0, f"{name[:80]!r}: expected a whole number, got {str(value)[:80]}")
        numbers.append((value, name))
    numbers.sort(key=lambda one: one[0])
    return [{"id": number, "content": name, **SPECIAL_TOKEN} for number, name in numbers]
