"""The source of a tokenizer: files, folders, sentencepiece models, names on the hub; and its copy in a cache."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from mudd_core.base.errors import FormatError, UserError
from mudd_core.data import open_cache, prepare, synthetic
from mudd_core.data.sources.access import Access
from mudd_core.data.sources.hub_names import without_token
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import find_tokenizer, stored_tokenizer
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer
from text_settings import Settings, quiet

TEXTS = [synthetic.text(3000, seed).encode() for seed in range(8)]
TRAINED = train_bpe(TEXTS, len(TEXTS), 400)
DOCUMENTS = [b"the river holds", "naïve \u4f60\u597d\n".encode(), b"", b"  two  spaces </s>"]


@pytest.fixture(scope="module")
def model() -> bytes:
    """Return a sentencepiece model with byte fallback like LLaMA's, trained here by the sentencepiece library."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.decode() for text in TEXTS]),
        model_writer=out,
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
        num_threads=1,
    )
    return out.getvalue()


def gpt2_folder(folder: Path) -> Path:
    """Write the vocabulary of TRAINED as vocab.json and merges.txt."""
    folder.mkdir()
    bpe = json.loads(TRAINED)["model"]
    (folder / "vocab.json").write_text(json.dumps(bpe["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return folder


def write(folder: Path, **config: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_a_folder_gives_its_tokenizer_json_and_the_ids_that_its_config_names(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(TRAINED)
    names = json.loads(TRAINED)["model"]["vocab"]
    first, second = list(names)[5:7]
    write(tmp_path, eos_token={"content": first}, pad_token=second, bos_token=None)
    source = find_tokenizer(str(tmp_path), 0)
    made = source.make()
    assert (made.eos_id, made.pad_id) == (names[first], names[second])
    assert made.bos_id == names["<|endoftext|>"]  # in GPT-2's family BOS is the token that ends a document
    assert source.identity != find_tokenizer(str(tmp_path / "tokenizer.json"), 0).identity
    again = stored_tokenizer(source.identity, source.data, "stored")
    assert (again.eos_id, again.pad_id) == (made.eos_id, made.pad_id)


def test_vocab_and_merges_give_the_ids_of_the_tokenizer_json(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "gpt2")
    made, wanted = find_tokenizer(str(folder), 0).make(), JsonTokenizer(TRAINED, "trained")
    for got, expected in zip(
        made.encode_documents(DOCUMENTS), wanted.encode_documents(DOCUMENTS), strict=True
    ):
        assert got.tolist() == expected.tolist()
    assert (made.eos_id, made.vocab_size) == (wanted.eos_id, wanted.vocab_size)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: (folder / "merges.txt").write_text("a b c\n"), "line 1 is not a pair of tokens"),
        (lambda folder: (folder / "vocab.json").write_text("[]"), "expected a JSON object"),
        (lambda folder: write(folder, eos_token="<none>"), "eos_token: '<none>' is not in the vocabulary"),
        (lambda folder: write(folder, eos_token=3), "eos_token: expected a string or null"),
    ],
)
def test_a_damaged_folder_is_a_format_error(tmp_path: Path, change: Any, reason: str) -> None:
    folder = gpt2_folder(tmp_path / "gpt2")
    change(folder)
    with pytest.raises(FormatError, match=reason):
        find_tokenizer(str(folder), 0).make()


def test_a_folder_of_another_program_or_of_none_is_refused(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "qwen")
    write(folder, tokenizer_class="Qwen2Tokenizer")
    with pytest.raises(
        UserError, match=r"expected vocab.json and merges.txt of GPT2Tokenizer, got files of Qwen2"
    ):
        find_tokenizer(str(folder), 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"expected tokenizer.json, vocab.json with merges.txt, or a \*.model"
    ):
        find_tokenizer(str(tmp_path / "empty"), 0)


def test_dropout_is_refused_since_it_gives_other_ids_at_every_call(tmp_path: Path) -> None:
    content = json.loads(TRAINED)
    content["model"]["dropout"] = 0.1
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"model.dropout is 0.1"):
        find_tokenizer(str(tmp_path), 0).make()


def test_a_sentencepiece_model_gives_the_ids_of_its_library(model: bytes, tmp_path: Path) -> None:
    import sentencepiece

    (tmp_path / "tokenizer.model").write_bytes(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for name in (str(tmp_path), str(tmp_path / "tokenizer.model")):
        made = find_tokenizer(name, 0).make()
        texts = [text.decode() for text in DOCUMENTS]
        assert [ids.tolist() for ids in made.encode_documents(DOCUMENTS)] == [
            library.encode(t) for t in texts
        ]
        assert (made.bos_id, made.eos_id, made.pad_id) == (1, 2, None)
        assert made.vocab_size == library.get_piece_size()
        assert made.decode([*made.encode("the river"), 2]) == "the river<|endoftext|>"
        stream = made.stream()
        assert "".join(stream(i) for i in made.encode("the river")) == "the river"


def test_names_of_special_tokens_are_tokens_where_the_original_programs_have_them_so(
    model: bytes, tmp_path: Path
) -> None:
    import sentencepiece
    from tokenizers import Tokenizer as Library

    (tmp_path / "tokenizer.json").write_bytes(TRAINED)
    text = "the<|endoftext|> river</s>holds"
    source = find_tokenizer(str(tmp_path), 0).reading_names()
    made = stored_tokenizer(source.identity, TRAINED, "stored")
    expected = Library.from_str(TRAINED.decode()).encode(text).ids
    assert expected.count(0) == 1
    assert made.encode_documents([text.encode()])[0].tolist() == made.encode(text) == expected
    assert 0 not in find_tokenizer(str(tmp_path), 0).make().encode(text)

    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    made = find_tokenizer(str(tmp_path), 0).reading_names().make()
    first, second = library.encode("the<|endoftext|> river"), library.encode("holds")
    texts = [text.encode(), b"</s>", b"", b"<s><unk>holds"]
    rows = [row.tolist() for row in made.encode_documents(texts, template=True)]
    assert rows == [[*first, 2, *second], [2], [], [1, 0, *second]]
    assert made.encode("holds") == second


def test_a_tokenizer_of_bytes_or_trained_here_keeps_its_rule() -> None:
    for name in ("bytes", "bpe"):
        assert find_tokenizer(name, 300).reading_names() == find_tokenizer(name, 300)


def test_the_template_of_a_model_is_that_of_its_program(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model)
    (plain,) = find_tokenizer(str(tmp_path), 0).make().encode_documents([b"the"], template=True)
    write(tmp_path, tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>", pad_token="<none>")
    source = find_tokenizer(str(tmp_path), 0)
    (llama,) = stored_tokenizer(source.identity, model, "stored").encode_documents([b"the"], template=True)
    write(tmp_path, tokenizer_class="T5Tokenizer")
    (t5,) = find_tokenizer(str(tmp_path), 0).make().encode_documents([b"the"], template=True)
    assert llama.tolist() == [1, *plain]
    assert t5.tolist() == [*plain, 2]


def test_a_tokenizer_json_has_its_own_template() -> None:
    content = json.loads(TRAINED)
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "E", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"E": {"id": "E", "ids": [0], "tokens": ["<|endoftext|>"]}},
    }
    made = JsonTokenizer(json.dumps(content).encode(), "with a template")
    (plain,), (with_end,) = made.encode_documents([b"the"]), made.encode_documents([b"the"], template=True)
    assert with_end.tolist() == [*plain, 0]


@pytest.mark.parametrize("data", [b"", b"\xff" * 64, b"\x0a\x03abc"])
def test_what_is_no_model_is_a_format_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.model").write_bytes(data)
    with pytest.raises(FormatError):
        find_tokenizer(str(tmp_path / "a.model"), 0).make()


def cached(home: Path, name: str) -> None:
    """Write a tokenizer in the layout of huggingface_hub's cache."""
    folder = home / "hub" / ("models--" + name.replace("/", "--"))
    snapshot = folder / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    (snapshot / "tokenizer.json").write_bytes(TRAINED)


@pytest.mark.parametrize("asked", ["EleutherAI/gpt-neox-20b", "gpt2", "openai-community/gpt2"])
def test_a_hub_name_is_found_below_hf_home(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    cached(tmp_path, "EleutherAI/gpt-neox-20b")
    cached(tmp_path, "openai-community/gpt2")
    assert find_tokenizer(asked, 0).data == TRAINED


def test_a_local_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cached(tmp_path, "gpt2")
    folder = gpt2_folder(tmp_path / "gpt2")
    assert find_tokenizer("gpt2", 0).file == str(Path("gpt2") / "vocab.json")
    assert folder.is_dir()


def test_a_hub_name_that_is_not_here_says_what_was_looked_at_and_what_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        find_tokenizer("t5-base", 0)
    text = str(error.value)
    assert str(tmp_path / "t5-base") in text and f"HF_HOME ({tmp_path})" in text
    assert "hf download google-t5/t5-base" in text and "hub.online=true" in text


def test_online_the_hub_is_asked_and_its_errors_show_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def fails(name: str, **_: Any) -> str:
        raise OSError(f"no route to {name} with hf_secret")

    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(UserError, match=r"no route to a/b with \*\*\*"):
        find_tokenizer("a/b", 0, Access(online=True))
    assert without_token("hf_secret") == "***"


def test_a_cache_keeps_a_model_and_its_ids(model: bytes, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "tokenizer.model").write_bytes(model)
    write(tmp_path / "m", pad_token="</s>")
    settings = Settings(str(folder), str(tmp_path / "cache"), tokenizer=str(tmp_path / "m"))
    cache = prepare(settings, progress=quiet)
    (tmp_path / "m" / "tokenizer.model").unlink()
    again = open_cache(cache.path).tokenizer
    assert (again.bos_id, again.eos_id, again.pad_id) == (1, 2, 2)
    assert again.encode("the river") == cache.tokenizer.encode("the river")
    assert int(cache.tokens("train").max()) < cache.vocab_size
