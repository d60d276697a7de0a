"""Export a tokenizer as the files that other programs read: its vocabulary, and tokenizer_config.json."""

from __future__ import annotations

import json
from pathlib import Path

from mudd_core.base.types import JsonObject
from mudd_core.data.tokenizers.bpe_pieces import MODEL
from mudd_core.data.tokenizers.folder import CONFIG
from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer
from mudd_core.data.tokenizers.special_tokens import END_OF_TEXT
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer, JsonTokenizer, Tokenizer, byte_alphabet

VOCABULARIES = ("tokenizer.json", "tokenizer.model")
OF_FILES = (JsonTokenizer, SentencePieceTokenizer)  # classes of tokenizers that a file defines


def has_vocabulary(folder: Path) -> bool:
    """Return True if a folder has the vocabulary of a tokenizer."""
    return any((folder / name).is_file() for name in VOCABULARIES)


def special_ids(tokenizer: Tokenizer) -> dict[str, int | None]:
    """Return the ids of BOS, EOS and padding under their names in a config.json."""
    return {
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "pad_token_id": tokenizer.pad_id,
    }


def name_of(tokenizer: Tokenizer, token: int) -> str:
    """Return the string of a token in the vocabulary."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return tokenizer.piece(token)
    return tokenizer.names()[token] if isinstance(tokenizer, JsonTokenizer) else END_OF_TEXT


def tokenizer_files(tokenizer: Tokenizer, longest: int = 0) -> dict[str, bytes]:
    """Return the content of each file by name. longest: the model's maximum sequence length, for its config."""
    config: JsonObject = {"clean_up_tokenization_spaces": False}
    if longest:
        config["model_max_length"] = longest
    if isinstance(tokenizer, SentencePieceTokenizer):
        name, data = "tokenizer.model", tokenizer.data
        begins, ends = tokenizer.template
        # The class that reads such a model; legacy=false keeps the spaces after special tokens.
        config |= {"tokenizer_class": "LlamaTokenizer", "legacy": False}
        config |= {"add_bos_token": begins, "add_eos_token": ends}
    elif isinstance(tokenizer, ByteTokenizer):
        name, data = "tokenizer.json", _bytes_json(tokenizer)
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    else:
        assert isinstance(tokenizer, JsonTokenizer)
        name, data = "tokenizer.json", tokenizer.data
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for kind in ("bos", "eos", "pad"):
        if (token := getattr(tokenizer, f"{kind}_id")) is not None:
            config[f"{kind}_token"] = name_of(tokenizer, token)
    return {name: data, CONFIG: (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()}


def _bytes_json(tokenizer: ByteTokenizer) -> bytes:
    """Return the tokenizer.json of the byte tokenizer: a byte-level BPE without merges."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    end = {
        "id": tokenizer.eos_id,
        "content": END_OF_TEXT,
        "special": True,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }
    model: JsonObject = {
        **MODEL,
        "vocab": {**byte_alphabet(), END_OF_TEXT: tokenizer.eos_id},
        "merges": [],
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": model,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
