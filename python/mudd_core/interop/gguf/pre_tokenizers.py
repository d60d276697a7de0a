"""The pre-tokenizers that llama.cpp knows by name, with their definitions in a tokenizer.json.

A GGUF file has only the name. llama.cpp splits text by its own regular expression for this name, so a wrong name gives
wrong ids. A definition without a name is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from mudd_core.base.types import Json, JsonObject


class Definition(NamedTuple):
    """The settings of a byte-level BPE that determine how text is split.

    steps: of the pre-tokenizer. ignores_merges: a piece in the vocabulary is one token, whatever the merges are.
    """

    steps: tuple[tuple[str, ...], ...]
    ignores_merges: bool = False


_ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = ("split", rf"{_ENGLISH}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}")
_QWEN2 = ("split", rf"{_ENGLISH}|{_LETTERS}|\p{{N}}|{_REST}")
_WORDS, _BYTES, _DIGITS = ("words",), ("bytes",), ("digits",)  # `words` splits as GPT-2 does
NAMES: dict[Definition, str] = {
    Definition((_WORDS,)): "gpt-2",
    Definition((_DIGITS, _WORDS)): "smollm",
    Definition((_QWEN2, _BYTES)): "qwen2",
    Definition((_LLAMA3, _BYTES)): "dbrx",
    Definition((_LLAMA3, _BYTES), ignores_merges=True): "llama-bpe",
}


def pre_tokenizer_name(content: JsonObject) -> str:
    """Return llama.cpp's name for the pre-tokenizer of a byte-level BPE. content: its tokenizer.json.

    Raise ValueError for a definition that llama.cpp does not have.
    """
    model = content["model"]
    assert isinstance(model, dict)
    steps, normalizer = content.get("pre_tokenizer"), content.get("normalizer")
    definition = Definition(tuple(_steps(steps)), model.get("ignore_merges") is True)
    name = NAMES.get(definition)
    # llama.cpp never normalizes text. Text of the web is in form NFC already, and its converter ignores NFC too.
    if name is None or normalizer not in (None, {"type": "NFC"}):
        given = json.dumps(steps if name is None else normalizer, ensure_ascii=False)
        what = "pre_tokenizer" if name is None else "normalizer"
        raise ValueError(
            f"expected a tokenizer that splits text like {', '.join(NAMES.values())}, got the {what} {given[:300]}"
        )
    return name


def _steps(pre_tokenizer: Json) -> Iterator[tuple[str, ...]]:
    """Yield the steps of a pre-tokenizer; a step that is not in the table is yielded as its JSON."""
    match pre_tokenizer:
        case {"type": "Sequence", "pretokenizers": [*steps]}:
            for step in steps:
                yield from _steps(step)
        case {"type": "Digits", "individual_digits": True}:
            yield _DIGITS
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            yield ("split", pattern)
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}:
            yield _BYTES
        case {"type": "ByteLevel", "add_prefix_space": False}:
            yield _WORDS
        case _:
            yield ("unknown", json.dumps(pre_tokenizer))
