"""What a byte-level tokenizer.json of ours has beside its vocabulary, merges and tokens."""

from __future__ import annotations

from mudd_core.base.types import JsonObject

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
