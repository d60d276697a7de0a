"""Tokenizers: round trips, end of document, streaming, and forbidden contents of a tokenizer.json."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudd_core.base.errors import FormatError, UserError
from mudd_core.data import synthetic
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import read_tokenizer_json
from mudd_core.data.tokenizers.tokenizer import (
    END_OF_TEXT,
    ByteTokenizer,
    JsonTokenizer,
    Tokenizer,
    byte_alphabet,
)
from places import ROOT

TEXTS = [synthetic.text(3000, seed).encode() for seed in range(8)]
TRAINED = train_bpe(TEXTS, len(TEXTS), 400)
GOOD: dict[str, Any] = json.loads(TRAINED)


@pytest.fixture(params=["bytes", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return ByteTokenizer() if request.param == "bytes" else JsonTokenizer(TRAINED, "trained")


def test_alphabet_is_that_of_the_library() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(byte_alphabet()) == sorted(ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_training_gives_the_same_bytes_with_any_number_of_threads(threads: str) -> None:
    code = (
        "import sys; from mudd_core.data import synthetic;"
        "from mudd_core.data.tokenizers.bpe_training import train_bpe;"
        "t = [synthetic.text(3000, s).encode() for s in range(8)];"
        "sys.stdout.buffer.write(train_bpe(t, 8, 400))"
    )
    env = {"PYTHONPATH": str(ROOT / "python"), "RAYON_NUM_THREADS": threads}
    run = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
    assert run.stdout == TRAINED


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_text_comes_back(text: str) -> None:
    for t in (ByteTokenizer(), JsonTokenizer(TRAINED, "trained")):
        ids = t.encode(text)
        assert t.decode(ids) == text
        assert t.eos_id not in ids
        assert all(0 <= i < t.vocab_size for i in ids)
        assert [int(i) for i in t.encode_documents([text.encode()])[0]] == ids


def test_decoding_is_that_of_the_library(tokenizer: Tokenizer) -> None:
    if isinstance(tokenizer, ByteTokenizer):
        return
    from tokenizers import Tokenizer as Library

    library = Library.from_str(TRAINED.decode())
    ids = tokenizer.encode("the river holds é\n\n\tx = 1")
    assert tokenizer.decode(ids) == library.decode(ids)


def test_end_of_text_in_a_document_is_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(f"a{END_OF_TEXT}b")
    assert tokenizer.eos_id not in ids
    assert tokenizer.decode(ids) == f"a{END_OF_TEXT}b"
    assert tokenizer.decode([tokenizer.eos_id]) == END_OF_TEXT


def test_stream_gives_whole_characters(tokenizer: Tokenizer) -> None:
    text = "naïve 漢字 🙂 end"
    stream = tokenizer.stream()
    pieces = [stream(i) for i in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("bad", [-1, 100_000])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, bad: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        tokenizer.decode([1, bad])


def test_half_a_surrogate_is_a_value_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode("\ud800")


def changed(path: str, value: object) -> bytes:
    content = copy.deepcopy(GOOD)
    *way, last = path.split("/")
    at: Any = content
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    if isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return json.dumps(content).encode()


TEMPLATE = {"type": "TemplateProcessing", "single": [], "pair": []}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"[1]", "not an object"),
        (b"\xff", "not UTF-8"),
        (TRAINED[:-20], "not JSON"),
        (b"[" * 100_000, "nested"),
        (changed("normalizer", json.loads("[" * 70 + "]" * 70)), "nested deeper than 64"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
        (changed("model", None), "model is not an object"),
        (changed("model/type", "Magic"), "model type"),
        (changed("model/vocab", {}), "merges"),
        (changed("model/vocab/a", -1), "id -1"),
        (changed("model/vocab/a", 2**40), "is not a whole number"),
        (changed("model/vocab/a", True), "is not a whole number"),
        (changed("model/vocab/a", 5), "one id to two tokens"),
        (changed("model/vocab/" + "x" * 2049, 9000), "1 to 2048 bytes"),
        (changed("model/unk_token", "nowhere"), "unk_token"),
        (changed("model/merges/3", ["nowhere", "a"]), "which is not in the vocabulary"),
        (changed("model/merges/3", "a b c"), "not a pair"),
        (changed("added_tokens/0/id", 7), "contradicts"),
        (changed("truncation", {"max_length": 4, "stride": 4}), "stride"),
        (changed("padding", {"pad_id": -3}), "padding.pad_id"),
        (
            changed("post_processor", TEMPLATE | {"special_tokens": {"[A]": {"ids": [1], "tokens": []}}}),
            "do not match",
        ),
        (
            changed(
                "post_processor", TEMPLATE | {"special_tokens": {"[A]": {"ids": [99999], "tokens": ["x"]}}}
            ),
            "not in the vocabulary",
        ),
        (
            changed(
                "post_processor",
                TEMPLATE | {"special_tokens": {}, "single": [{"SpecialToken": {"id": "[B]", "type_id": 0}}]},
            ),
            "does not define",
        ),
        (changed("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a" * 5000}}), "regular expression"),
        (changed("decoder", "x"), "decoder is not an object"),
        (changed("decoder", {"type": "Sequence", "decoders": [1]}), "not a list of objects"),
        (changed("model/unk_token", ["a"]), "unusable|unhashable"),
        (changed("model/continuing_subword_prefix", 5), "not a usable"),
        (changed("post_processor", {"type": "Sequence", "processors": 5}), "not a usable"),
        (
            changed("post_processor", TEMPLATE | {"special_tokens": {}, "single": [{"SpecialToken": 5}]}),
            "not a usable",
        ),
        (b'{"a": ' + b"1" * 5000 + b"}", "not a usable"),
        (changed("added_tokens/0", {"id": 2**24 - 1, "content": "far"}), "in a vocabulary of"),
    ],
)
def test_bad_tokenizer_files_are_format_errors(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words) as e:
        JsonTokenizer(data, "bad.json")
    assert e.value.file == "bad.json"
    assert e.value.exit_code == 65


def test_what_only_the_library_knows_is_a_format_error_too() -> None:
    with pytest.raises(FormatError, match="tokenizers library"):
        JsonTokenizer(changed("pre_tokenizer", {"type": "Nonsense"}), "bad.json").encode("a")


def test_a_regular_expression_without_end_stops() -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    slow = JsonTokenizer(changed("pre_tokenizer", split), "slow.json")
    with pytest.raises(FormatError, match="retry-limit"):
        slow.encode("a" * 64 + "b")


def test_a_tokenizer_without_an_end_is_a_user_error() -> None:
    content = copy.deepcopy(GOOD)
    content["added_tokens"] = []
    del content["model"]["vocab"][END_OF_TEXT]
    with pytest.raises(UserError, match="no end-of-document token"):
        JsonTokenizer(json.dumps(content).encode(), "t.json")


def test_missing_files_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_tokenizer_json(str(tmp_path / "nowhere.json"))


def test_unigram_files_are_read() -> None:
    vocab = [["<unk>", 0.0], ["</s>", 0.0], ["▁a", -1.0], ["b", -2.0]]
    content = {
        "model": {"type": "Unigram", "vocab": vocab, "unk_id": 0},
        "added_tokens": [],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    }
    t = JsonTokenizer(json.dumps(content).encode(), "u.json")
    ids = t.encode("ab ab")
    assert ids == [2, 3, 2, 3]
    assert t.eos_id == 1
    assert t.decode(ids) == "ab ab"
    stream = t.stream()
    assert "".join(stream(i) for i in ids) == "ab ab"
    content["model"]["vocab"][3][1] = float("nan")
    with pytest.raises(FormatError, match="score"):
        JsonTokenizer(json.dumps(content).encode(), "u.json")
