"""Files that the standard libraries wrote (goldens/formats/write.py): every reader finds their contents."""

from __future__ import annotations

import json

import pytest

from mudd_core.data.formats import documents, format_of, rows
from mudd_core.data.sources.listing import data_files
from mudd_core.data.tokenizers.source import find_tokenizer
from places import TESTS

GOLDENS = TESTS / "goldens" / "formats"
EXPECTED = json.loads((GOLDENS / "expected.json").read_text())
FILES = {
    "a.parquet": "parquet",
    "plain.parquet": "parquet",
    "stream.arrow": "arrow",
    "file.arrow": "arrow",
    "a.tfrecord": "tfrecord",
    "a.arrayrecord": "arrayrecord",
    "grouped.arrayrecord": "arrayrecord",
    "a.jsonl.gz": "jsonl",
    "a.jsonl.zst": "jsonl",
}


def test_every_file_is_looked_at() -> None:
    others = {"expected.json", "write.py", "saved", "tokenizer.json", "tokenizer.model"}
    assert {path.name for path in GOLDENS.iterdir() if path.name != "__pycache__"} == FILES.keys() | others


@pytest.mark.parametrize("name", FILES)
def test_texts_and_ids_of_a_file(name: str) -> None:
    assert format_of(GOLDENS / name).name == FILES[name]
    assert list(documents(GOLDENS / name)) == EXPECTED["texts"]
    assert [ids.tolist() for ids in rows(GOLDENS / name)] == EXPECTED["ids"]
    assert list(documents(GOLDENS / name))[3:] == EXPECTED["texts"][3:]


def test_a_folder_of_save_to_disk() -> None:
    files = data_files(str(GOLDENS / "saved"))
    assert [path.name for path in files] == ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert [text for path in files for text in documents(path)] == EXPECTED["texts"]
    assert [ids.tolist() for path in files for ids in rows(path)] == EXPECTED["ids"]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_ids_of_a_tokenizer(name: str) -> None:
    """Include a string with the name of a special token, which tokenizers encodes as that token."""
    source = find_tokenizer(str(GOLDENS / name), 0)
    texts = [text.encode() for text in (*EXPECTED["texts"], "an end<|endoftext|>inside")]
    made = source.reading_names().make()
    assert [row.tolist() for row in made.encode_documents(texts)] == EXPECTED["encoded"][name]
    plain = [row.tolist() for row in source.make().encode_documents(texts)]
    assert plain[:-1] == EXPECTED["encoded"][name][:-1]
    assert (plain[-1] == EXPECTED["encoded"][name][-1]) == (name == "tokenizer.model")
    assert made.decode(plain[0]) == EXPECTED["texts"][0]
