"""data.document: a file, a piece or a line is a document. The cache depends on it; a start names what validates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launched import called, launched
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.data import DocumentRule
from mudd_core.data import prepare, synthetic
from mudd_core.data.pipelines import prepare as prepare_config
from mudd_core.data.sources import corpus
from mudd_core.data.sources.boundaries import tail_start
from text_settings import Settings, quiet


@pytest.fixture
def two_files(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        lines = synthetic.text(2000 if name == "a.txt" else 3000).split(". ")
        (folder / name).write_text("\n".join(lines) + "\n\n   \n")
    return folder


def texts_of(path: Path, rule: DocumentRule) -> list[bytes]:
    """Return all documents, in the order of their files."""
    found = corpus.scan(str(path), rule=rule)
    return [d.read() for d in sorted((*found.train, *found.valid), key=lambda d: (d.path, d.start))]


def test_lines_are_documents_without_their_ends_and_blank_ones_are_none(two_files: Path) -> None:
    want = [
        line.encode()
        for name in ("a.txt", "b.txt")
        for line in (two_files / name).read_text().split("\n")
        if line.strip()
    ]
    assert texts_of(two_files, "line") == want and len(want) > 10
    (two_files / "a.txt").write_bytes(b"one\r\n\r\ntwo\r\nthree")
    assert texts_of(two_files / "a.txt", "line") == [b"one", b"two", b"three"]


def test_pieces_of_every_file_join_to_the_files(two_files: Path) -> None:
    pieces = texts_of(two_files, "piece")
    assert b"".join(pieces) == b"".join((two_files / name).read_bytes() for name in ("a.txt", "b.txt"))
    assert len(pieces) > 2  # auto: a folder's files are whole documents
    assert texts_of(two_files, "auto") == texts_of(two_files, "file")


def test_of_a_single_file_the_last_tenth_validates(two_files: Path) -> None:
    file = two_files / "b.txt"
    found = corpus.scan(str(file), rule="file")
    (train,), (valid,) = found.train, found.valid
    data = file.read_bytes()
    assert train.read() + valid.read() == data
    assert data[valid.start - 1 : valid.start] == b"\n" and valid.start >= 0.9 * len(data)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"x" * 100, 90),
        ("é".encode() * 50, 90),
        (("x" + "é" * 50).encode(), 91),
        (b"x" * 95 + b"\n" + b"y" * 4, 96),
        (b"x" * 99 + b"\n", 90),
    ],
)
def test_the_tail_starts_at_a_line_or_at_a_character(text: bytes, want: int) -> None:
    at = tail_start(text)
    assert at == want
    text[at:].decode()


def test_each_rule_has_a_cache_and_auto_has_the_one_of_earlier_versions(
    two_files: Path, tmp_path: Path
) -> None:
    root = str(tmp_path / "cache")
    names = {
        rule: prepare(Settings(str(two_files), root, "bytes", document=rule), progress=quiet).path.name
        for rule in ("auto", "file", "piece", "line")
    }
    assert len(set(names.values())) == 4
    for rule, name in names.items():  # found by their notes, or read again, but never mixed up
        again = prepare(Settings(str(two_files), root, "bytes", document=rule), progress=quiet)
        assert again.path.name == name


@pytest.mark.parametrize("rule", ["file", "piece", "line"])
def test_named_validation_files_have_the_rule_too(
    two_files: Path, tmp_path: Path, rule: DocumentRule
) -> None:
    config = Config().replace(
        {
            "data.path": str(two_files / "a.txt"),
            "data.eval_path": str(two_files / "b.txt"),
            "data.tokenizer": "bytes",
            "data.cache_dir": str(tmp_path / "cache"),
            "data.document": rule,
        }
    )
    expected = {"file": 1, "piece": len(texts_of(two_files / "b.txt", "piece"))}
    expected["line"] = len(texts_of(two_files / "b.txt", "line"))
    assert prepare_config(config).documents[1] == expected[rule]


def test_records_are_documents_already(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n' * 30)
    done = called(tmp_path, "--config=tiny.py", "data.path=a.jsonl", "data.document=line", "--workdir=run")
    assert done.returncode == 2
    assert "[data.document] expected auto for files of jsonl" in done.stderr
    assert not os.path.exists(tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["data.document=page"], "data.document"),
        (["data.document=line", "data.pipeline=pack"], "data.document: expected auto for data.pipeline=pack"),
    ],
)
def test_other_values_and_pipelines_are_refused(words: list[str], want: str, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("a line\n" * 100)
    done = called(tmp_path, "--config=tiny.py", "data.path=my.txt", "--workdir=run", *words)
    assert done.returncode == 2 and want in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_start_says_what_the_documents_are_and_which_validate(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text(synthetic.text(4000))
    small = [
        "--config=tiny.py", "data.path=my.txt", "train.steps=1", "train.save=false", "data.tokenizer=bytes",
        "model.n_layer=1", "model.d_model=32", "train.seq_len=32", "eval.max_batches=1",
    ]  # fmt: skip
    done = launched(tmp_path, *small, "--workdir=run")
    assert done.returncode == 0, done.stderr
    count = len(texts_of(tmp_path / "my.txt", "auto"))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("data      ")]
    assert line.startswith(f"data      my.txt: {count} documents of about ")
    assert ", each ended by <|endoftext|>, " in line and " held out, " in line
    whole = launched(tmp_path, *small, "data.document=file", "--workdir=whole")
    assert whole.returncode == 0, whole.stderr
    assert "my.txt: one file, whose last 10% are held out, " in whole.stdout
    (tmp_path / "two").mkdir()
    for number in range(9):
        (tmp_path / "two" / f"{number}.txt").write_text(f"file {number} " + synthetic.text(400))
    several = launched(tmp_path, *small, "data.document=file", "data.path=two", "--workdir=several")
    assert "two: 9 documents of about " in several.stdout, several.stderr


def test_a_corpus_of_one_line_is_too_small(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("a line\n")
    with pytest.raises(UserError, match="too small: 1 documents"):
        corpus.scan(str(tmp_path / "my.txt"), rule="line")
