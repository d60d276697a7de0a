"""Tokenizers that lose text: the build reports the loss, and no bits per byte are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.data.documents import cache_request
from mudd_core.data.pipelines import prepare
from mudd_core.data.rows import Prepared
from mudd_core.run.build import start_warnings
from text_settings import quiet

TEXTS = [f"Document {i} is about the River and {'漢字' if i % 10 == 0 else 'a wheel'}." for i in range(400)]
SPECIAL = ["<unk>", "</s>"]


def _trained(
    model: Any, trainer: Any, decoder: Any = None, normalizer: Any = None, pieces: Any = None
) -> str:
    library = Library(model)
    library.pre_tokenizer = pieces or pre_tokenizers.Metaspace()
    library.decoder = decoder or decoders.Metaspace()
    if normalizer is not None:
        library.normalizer = normalizer
    library.train_from_iterator([text for text in TEXTS if "漢" not in text], trainer)
    return library.to_str()


def _bpe(size: int = 300, **kwargs: Any) -> str:
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    return _trained(models.BPE(), trainer, **kwargs)


def _lower_case() -> str:
    return _bpe(normalizer=normalizers.Lowercase())


def _unknown_words() -> str:
    trainer = trainers.WordLevelTrainer(vocab_size=9, special_tokens=SPECIAL, show_progress=False)
    return _trained(models.WordLevel(unk_token="<unk>"), trainer, pieces=pre_tokenizers.WhitespaceSplit())


def _in_bytes() -> str:
    """Return a byte-level BPE that differs from mudd_core's: it adds a space before the text."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return _trained(models.BPE(), trainer, decoder=decoders.ByteLevel(), pieces=pieces)


def prepared(folder: Path, tokenizer: str) -> Prepared:
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    config = Config()
    for name, value in (("path", "text.jsonl"), ("tokenizer", "tokenizer.json"), ("cache_dir", "cache")):
        config = replace_path(config, f"data.{name}", str(folder / value))
    return prepare(config, progress=quiet)


@pytest.mark.parametrize(
    ("made", "lost"),
    [
        (_lower_case, "100.0%"),  # every document has a capital letter
        (_unknown_words, "100.0%"),
        (_bpe, "29 of 294 documents (9.9%)"),  # characters outside its alphabet disappear
    ],
)
def test_a_tokenizer_that_loses_text_has_no_bits_per_byte(
    tmp_path: Path, made: Callable[[], str], lost: str
) -> None:
    for _ in range(2):  # first built, then found
        text = prepared(tmp_path, made())
        assert text.valid_bytes_per_target == 0
        (warning,) = start_warnings.of_files(text)
        assert lost in warning and "no bits per byte" in warning


@pytest.mark.parametrize("made", [_in_bytes])
def test_a_tokenizer_that_keeps_text_has_bits_per_byte(tmp_path: Path, made: Callable[[], str]) -> None:
    text = prepared(tmp_path, made())
    assert text.valid_bytes_per_target > 1
    assert start_warnings.of_files(text) == []


def test_a_build_that_continues_counts_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(cache_request, "write_h5", killed)
        prepared(tmp_path, _lower_case())
    (warning,) = start_warnings.of_files(prepared(tmp_path, _lower_case()))
    assert "100.0%" in warning
