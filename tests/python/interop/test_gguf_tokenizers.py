"""Tokenizers in GGUF files: llama.cpp splits text as they do, or the export is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from gguf_cases import LlamaCpp, byte_level, imported, lines, make, write_sentencepiece, write_tokenizer
from hf_models import transformers
from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer
from mudd_core.data.tokenizers.sentencepiece_proto import PieceType
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer
from mudd_core.interop.gguf.merges import adds_space, scores_of
from mudd_core.interop.gguf.pre_tokenizers import NAMES, pre_tokenizer_name
from mudd_core.interop.gguf.tokenizer import vocabulary_of
from mudd_core.tools.import_weights import command as import_command

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
MARKED = "{x}<|im_start|>user\nthe cat<|im_end|>\n<|endoftext|>mat"


@pytest.mark.parametrize("kind", NAMES.values())
def test_llama_cpp_has_the_ids_of_a_byte_level_bpe(kind: str, tmp_path: Path) -> None:
    run = imported("llama", tmp_path, kind)
    mc.export(run, tmp_path / "out", "gguf")
    tokenizer, server = mc.load_run(run).tokenizer, LlamaCpp(tmp_path / "out" / "model.gguf")
    assert tokenizer is not None
    for line in [*lines(1000, 2), MARKED, ""]:
        assert server.ids(line) == tokenizer.encode(line), line
    assert (server.ids("a")[0] == 1) == (kind == "llama-bpe")  # BOS


def test_llama_cpp_has_the_ids_of_a_tokenizer_that_came_from_sentencepiece(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")  # transformers reads tokenizer.model with it
    run = imported("mistral", tmp_path, "llama")
    mc.export(run, tmp_path / "out", "gguf")
    found, server = mc.load_run(run), LlamaCpp(tmp_path / "out" / "model.gguf")
    assert found.tokenizer is not None
    for line in lines(1000, 2):
        # transformers adds no space if the text has one there; the export prints a note.
        line = line.lstrip(" ")
        assert server.ids(line) == found.tokenizer.encode(line), line
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi, über?"}]
    want = theirs.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert server.rendered(talk) == want and "</s>" in want


REPLACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPENDS = {"type": "Prepend", "prepend": "▁"}
SPLITS = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


@pytest.mark.parametrize(
    ("normalizer", "splitter"),
    [({"type": "Sequence", "normalizers": [PREPENDS, REPLACES]}, None), (REPLACES, SPLITS)],
    ids=["llama 2", "gemma"],
)
def test_llama_cpp_has_the_ids_of_older_folders(normalizer: Any, splitter: Any, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    source, run = tmp_path / "hf", tmp_path / "run"
    make("llama", source)
    write_tokenizer(source, "llama")
    content = json.loads((source / "tokenizer.json").read_text())
    content |= {"normalizer": normalizer, "pre_tokenizer": splitter}
    (source / "tokenizer.json").write_text(json.dumps(content))
    assert import_command.main([str(source), f"--workdir={run}"]) == 0
    mc.export(run, tmp_path / "out", "gguf")
    tokenizer, server = mc.load_run(run).tokenizer, LlamaCpp(tmp_path / "out" / "model.gguf")
    assert tokenizer is not None
    for line in [*lines(1000, 2), "  two", " </s> the cat<s>mat"]:
        assert server.ids(line) == tokenizer.encode(line), line


def test_each_name_has_a_different_definition() -> None:
    assert len(set(NAMES.values())) == len(NAMES)
    for name in NAMES.values():
        assert pre_tokenizer_name(json.loads(byte_level(name))) == name


UNKNOWN: list[dict[str, Any]] = [
    {"pre_tokenizer": None},
    {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}},
    {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}},
    {"pre_tokenizer": {"type": "Whitespace"}},
    {"normalizer": {"type": "Lowercase"}},
    {"model.ignore_merges": True},
    {"model.type": "WordPiece"},
    {"model.end_of_word_suffix": "</w>"},
]


@pytest.mark.parametrize("change", UNKNOWN, ids=str)
def test_tokenizers_without_a_name_in_llama_cpp_are_refused(change: dict[str, Any]) -> None:
    content = json.loads(byte_level("gpt-2"))
    for name, value in change.items():
        if name.startswith("model."):
            content["model"][name.removeprefix("model.")] = value
        else:
            content[name] = value
    with pytest.raises(ValueError, match=r"expected a (tokenizer that splits|byte-level BPE|BPE without)"):
        vocabulary_of(JsonTokenizer(json.dumps(content).encode(), "tokenizer.json"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "unigram"}, "model_type=bpe, got unigram"),
        ({"byte_fallback": False}, "byte_fallback=True, got False"),
        ({"normalization_rule_name": "nmt_nfkc"}, "normalization_rule_name=identity, got a table"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces=False, got True"),
    ],
)
def test_sentencepiece_models_that_llama_cpp_reads_in_another_way_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = write_sentencepiece(tmp_path, **options)
    with pytest.raises(ValueError, match=message):
        vocabulary_of(SentencePieceTokenizer(file.read_bytes(), "tokenizer.model"))


def test_scores_follow_the_merges_and_others_are_refused() -> None:
    types = dict.fromkeys(["a", "b", "c", "ab", "bc", "abc", "<s>"], PieceType.NORMAL)
    types["<s>"] = PieceType.CONTROL
    merges = [["a", "b"], ["b", "c"], ["a", "bc"], ["ab", "c"]]
    assert scores_of({"merges": merges}, types) == {"ab": 0, "bc": -1, "abc": -2}
    with pytest.raises(ValueError, match="no merge of 'a' and 'bc'"):
        scores_of({"merges": [merges[0], merges[1], merges[3]]}, types)
    with pytest.raises(ValueError, match="the merges of 'abc' do not follow each other"):
        scores_of({"merges": [merges[2], merges[0], merges[3], merges[1]]}, types)


def test_the_space_before_text_follows_the_normalizer() -> None:
    both = {"normalizer": {"type": "Sequence", "normalizers": [PREPENDS, REPLACES]}}
    assert adds_space(both) == (True, False)  # Llama 2
    assert adds_space({"normalizer": REPLACES, "pre_tokenizer": SPLITS}) == (False, False)  # Gemma
    for scheme, wanted in (("always", True), ("never", False), ("first", True)):
        meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        assert adds_space({"pre_tokenizer": meta}) == (wanted, wanted)
    with pytest.raises(ValueError, match="splits text as sentencepiece does"):
        adds_space({"normalizer": {"type": "NFKC"}})
