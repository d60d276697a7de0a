"""Prompts for weights that came with a tokenizer: the same ids as in transformers, with BOS and special tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.data.tokenizers.streams import Growing
from mudd_core.data.tokenizers.tokenizer import Tokenizer, byte_alphabet
from mudd_core.run.opened.source import folder_tokenizer

TEXTS = ["the cat sat on the mat", "hello world of text", "def read(self):\n    return 1\n"] * 20
PROMPTS = [
    "the cat",
    " the cat",
    "",
    "hello",
    "<|im_start|>user\nthe<|im_end|>\n",
    "a</s> b",
    "<s>the",
    "漢字 é",
]
MARKS = ["<|im_start|>", "<|im_end|>"]


def byte_fallback(bos: bool) -> tokenizers.Tokenizer:
    """Return a tokenizer like Llama-2's and Mistral's: it adds a space before the text, and its decoder removes it."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *MARKS]
    plain = [f"<0x{byte:02X}>" for byte in range(256)]
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=500, special_tokens=[*special, *plain]))
    content = json.loads(made.to_str())
    content["added_tokens"] = [one for one in content["added_tokens"] if one["content"] in special]
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def byte_level(template: str) -> tokenizers.Tokenizer:
    """Return a tokenizer like GPT-2's, Llama-3's and Qwen's. template: for its post-processor, or empty."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>", *MARKS]
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    if template:
        made.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", 0), ("</s>", 1)]
        )
    return made


KINDS = {
    "llama-2": (lambda: byte_fallback(True), {}),
    "no bos": (lambda: byte_fallback(False), {}),
    "add_bos_token without a template": (lambda: byte_fallback(False), {"add_bos_token": True}),
    "llama-3": (lambda: byte_level("<s> $A"), {}),
    "gpt-2": (lambda: byte_level(""), {}),
}


def folder_of(path: Path, kind: str, **config: object) -> Path:
    path.mkdir()
    build, more = KINDS[kind]
    build().save(str(path / "tokenizer.json"))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps({**named, **more, **config}))
    return path


def opened(folder: Path) -> Tokenizer:
    found = folder_tokenizer(folder)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_have_the_ids_of_transformers(kind: str, tmp_path: Path) -> None:
    import transformers

    folder = folder_of(tmp_path / "hf", kind)
    stock: Any = transformers.AutoTokenizer.from_pretrained(folder)
    own = opened(folder)
    for prompt in PROMPTS:
        assert own.encode(prompt) == stock(prompt).input_ids, prompt
        assert own.encode(prompt, bos=False) == stock(prompt, add_special_tokens=False).input_ids
        plain = stock(prompt, add_special_tokens=False, split_special_tokens=True).input_ids
        assert own.encode(prompt, bos=False, special_tokens=False) == plain
    # Training data are encoded differently: special tokens' names are plain text, and nothing is added.
    data = find_tokenizer(str(folder), 0).make()
    assert data.encode("<s>the") == own.encode("<s>the", bos=False, special_tokens=False)


def test_an_end_that_the_template_adds_is_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", "gpt-2")
    byte_level("<s> $A </s>").save(str(folder / "tokenizer.json"))
    own = opened(folder)
    assert own.encode("the")[0] == own.bos_id and own.eos_id not in own.encode("the")
    assert own.encode("the</s>")[-1] == own.eos_id  # the user typed it


def sentencepiece_folder(tmp_path: Path) -> Path:
    import sentencepiece

    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    folder = tmp_path / "sp"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "t.txt"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=300,
        byte_fallback=True,
        model_type="bpe",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
    return folder


def test_sentencepiece_begins_as_its_config_says(tmp_path: Path) -> None:
    folder = sentencepiece_folder(tmp_path)
    own, data = opened(folder), find_tokenizer(str(folder), 0).make()
    assert own.encode("the cat") == [own.bos_id, *data.encode("the cat")]
    assert own.encode("the cat", bos=False) == data.encode("the cat")
    assert own.encode("a</s>")[-1] == own.eos_id
    assert own.encode("a</s>", special_tokens=False) == [own.bos_id, *data.encode("a</s>")]


def test_own_tokenizers_read_prompts_as_their_data(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(train_bpe([text.encode() for text in TEXTS], 0, 300))
    own = opened(tmp_path)
    assert own.encode("<|endoftext|>") == find_tokenizer(str(tmp_path), 0).make().encode("<|endoftext|>")
    assert own.eos_id not in own.encode("<|endoftext|>")
    data = find_tokenizer("bytes", 0).make()
    assert data.for_prompts([3]).encode("ab") == [97, 98]


def test_special_tokens_map_names_tokens(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", "llama-3", bos_token="<s>")
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"})
    )
    own = opened(folder)
    assert (own.bos_id, own.eos_id) == (2, 3)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    assert opened(folder).eos_id == 1  # tokenizer_config.json has priority


@pytest.mark.parametrize("kind", ["llama-2", "no bos", "llama-3"])
def test_the_first_space_after_a_prompt_is_kept(kind: str, tmp_path: Path) -> None:
    own = opened(folder_of(tmp_path / "hf", kind))
    prompt, whole = own.encode("the cat"), own.encode("the cat sat on")
    assert whole[: len(prompt)] == prompt
    text_of = own.stream(prompt)
    assert "".join(map(text_of, whole[len(prompt) :])) == " sat on"
    if kind != "llama-3":
        assert "".join(map(Growing(own), own.encode("sat on", bos=False))) == "sat on"


def test_the_ends_of_generation_config_are_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "hf", "llama-3")
    for written, wanted in ((2, {2}), ([1, 3], {1, 3}), (None, set()), ("2", set()), ([True, 3], {3})):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": written}))
        assert opened(folder).stop_ids == wanted


# Bytes with an invalid or an incomplete character.
BROKEN = [b"\xe2\x96", b"\xc3", b"\xff", b"\xf0\x9f\x98", b"\xed\xffW", b"\xffW", b"\xe2\x96W\xf0"]
WHOLE = [b"\xe2\x96\x81", b"\xc3\xa9", b"W", b"\xf0\x9f\x98\x80W"]
# transformers removes the first character after the last byte; by then a stream has already written it.
TAKEN_BACK = [b"W\xc3", b"a\xa9W", b"\xc3\xa9\xff"]


def byte_ids(stock: Any, text: bytes) -> list[int]:
    """Return the ids of single bytes in a vocabulary."""
    alphabet = {byte: character for character, byte in byte_alphabet().items()}
    vocabulary = stock.get_vocab()
    return [vocabulary.get(f"<0x{byte:02X}>", vocabulary.get(alphabet[byte])) for byte in text]


@pytest.mark.parametrize("kind", ["llama-2", "llama-3", "sentencepiece"])
def test_bytes_that_are_no_character_have_the_text_of_transformers(kind: str, tmp_path: Path) -> None:
    import transformers

    folder = sentencepiece_folder(tmp_path) if kind == "sentencepiece" else folder_of(tmp_path / "hf", kind)
    stock: Any = transformers.AutoTokenizer.from_pretrained(folder)
    own = opened(folder)
    words = stock("the cat", add_special_tokens=False).input_ids
    for text in (*BROKEN, *WHOLE, *TAKEN_BACK):
        for ids in (
            byte_ids(stock, text),
            [*words, *byte_ids(stock, text)],
            [*byte_ids(stock, text), *words],
        ):
            wanted = stock.decode(ids, skip_special_tokens=False)
            assert own.decode(ids) == wanted
            stream = own.stream()
            streamed = "".join(map(stream, ids)) + stream.end()
            assert streamed == wanted or (text in TAKEN_BACK and len(streamed) == len(wanted))
            assert stream.end() == ""


@pytest.mark.parametrize("kind", ["llama-2", "llama-3", "sentencepiece"])
def test_ids_of_a_larger_model_have_no_text_as_in_transformers(kind: str, tmp_path: Path) -> None:
    import transformers

    folder = sentencepiece_folder(tmp_path) if kind == "sentencepiece" else folder_of(tmp_path / "hf", kind)
    stock: Any = transformers.AutoTokenizer.from_pretrained(folder)
    own = opened(folder)
    assert own.ids_below == 0 and find_tokenizer(str(folder), 0).make().ids_below == own.vocab_size
    words = stock("the cat", add_special_tokens=False).input_ids
    ids = [*words, own.vocab_size, *words, own.vocab_size + 70_000]
    wanted = stock.decode(ids)
    stream = own.stream()
    assert (
        own.decode(ids) == "".join(map(stream, ids)) + stream.end() == wanted == stock.decode(words + words)
    )
    with pytest.raises(ValueError, match="expected all in"):
        own.decode([-1])


def test_a_prompt_of_byte_tokens_is_not_cut_inside_a_character(tmp_path: Path) -> None:
    own = opened(folder_of(tmp_path / "hf", "llama-2"))
    ids = own.encode("漢字漢字", bos=False)
    for count in range(2):
        stream = own.stream(ids[: len(ids) - 3 * count])
        assert "".join(map(stream, own.encode("漢字 the", bos=False)[1:])) + stream.end() == "漢字 the"


class Counting:
    """A tokenizer with the number of ids that it has decoded."""

    def __init__(self, own: Any) -> None:
        self._own, self.decoded = own, 0

    def decode(self, ids: Iterable[int]) -> str:
        some = list(ids)
        self.decoded += len(some)
        return str(self._own.decode(some))


@pytest.mark.parametrize("kind", ["llama-2", "no bos", "sentencepiece"])
def test_a_stream_of_a_long_text_decodes_each_id_a_limited_number_of_times(kind: str, tmp_path: Path) -> None:
    own = opened(
        sentencepiece_folder(tmp_path) if kind == "sentencepiece" else folder_of(tmp_path / "hf", kind)
    )
    draw = random.Random(4)
    text = " ".join(draw.choice(["the cat", "sat", "漢字", "é on", "  two"]) for _ in range(400))
    ids = own.encode(text, bos=False)
    counting = Counting(own)
    stream = Growing(counting)
    assert "".join(map(stream, ids)) + stream.end() == own.decode(ids)
    assert len(ids) > 800 and counting.decoded < 64 * len(ids)
