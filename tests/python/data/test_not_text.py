"""Bytes that are not UTF-8, in every pipeline that reads text: the error names the command that converts the file."""

from __future__ import annotations

import gzip
import json
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.base.framing import framed
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.data import synthetic
from mudd_core.data.formats import documents, format_of
from mudd_core.data.formats.example import encoded
from mudd_core.data.pipelines import prepare
from mudd_core.data.rows import RowShape
from mudd_core.data.source_check import check_sources
from text_settings import quiet

WORDS = synthetic.text(40000, 1)[:40000]
LATIN = ("café latin " * 2000).encode("latin-1")
BAD: dict[str, tuple[bytes, str]] = {
    "latin1.txt": (WORDS.encode() + LATIN, r"at byte 40003: if it is Latin-1, type `iconv -f LATIN1"),
    "text.txt.gz": (gzip.compress(WORDS.encode() * 9), "compressed by gzip; type `gunzip -c"),
    "utf16.txt": (WORDS.encode("utf-16"), "`iconv -f UTF-16 -t UTF-8"),
}


def config_of(folder: Path, **data: object) -> Config:
    config = Config()
    for name, value in {"cache_dir": str(folder / "cache"), **data}.items():
        config = replace_path(config, f"data.{name}", value)
    return config


@pytest.mark.parametrize("pipeline", ["text", "pack", "rows", "blocks"])
@pytest.mark.parametrize("tokenizer", ["bpe", "bytes"])
@pytest.mark.parametrize("name", BAD)
def test_a_file_of_other_bytes_is_refused(tmp_path: Path, pipeline: str, tokenizer: str, name: str) -> None:
    data, words = BAD[name]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.txt").write_text(WORDS)
    bad = str(tmp_path / name)
    for path, eval_path in ((bad, ""), (str(tmp_path / "good.txt"), bad)):
        config = config_of(
            tmp_path, path=path, eval_path=eval_path, pipeline=pipeline, tokenizer=tokenizer, vocab_size=300
        )
        with pytest.raises(UserError, match=words) as caught:
            prepare(config, progress=quiet)
        assert caught.value.exit_code == 2
        with pytest.raises(UserError, match=words):
            check_sources(config)


@pytest.mark.parametrize("pipeline", ["pack", "blocks"])
def test_a_file_of_a_folder_and_of_a_stream_is_refused(tmp_path: Path, pipeline: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(WORDS)
    (tmp_path / "in" / "b.txt").write_bytes(LATIN)
    config = config_of(tmp_path, path=str(tmp_path / "in"), pipeline=pipeline, tokenizer="bytes")
    with pytest.raises(UserError, match="iconv -f LATIN1"):
        prepare(config, progress=quiet)
    config = config_of(
        tmp_path,
        path=str(tmp_path / "in" / "b.txt"),
        eval_path=str(tmp_path / "in" / "a.txt"),
        pipeline=pipeline,
        tokenizer="bytes",
        cache="stream",
        workers=1,
    )
    with pytest.raises(UserError, match="iconv -f LATIN1"):
        prepare(config, progress=quiet).rows("train", RowShape(8, 2, 0)).arrays(0, 2)


def records(text: str) -> bytes:
    return framed(encoded({"text": text})) * 20


@pytest.mark.parametrize(
    ("name", "pack", "command"),
    [
        ("a.tfrecord", gzip.compress, "GZIP in .*`gunzip -c <"),
        ("a.tfrecord.gz", gzip.compress, "GZIP in .*`gunzip -c <"),
        ("a.tfrecord", zlib.compress, "ZLIB in .*`python3 -c"),
        ("no_ending", zlib.compress, "ZLIB in .*`python3 -c"),
    ],
)
def test_compressed_tfrecords_are_refused_by_that_name(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], command: str
) -> None:
    file = tmp_path / name
    file.write_bytes(pack(records("a few words")))
    with pytest.raises(UserError, match=f"TFRecords compressed as {command}") as caught:
        list(documents(file))
    subprocess.run(str(caught.value).split("`")[1], shell=True, check=True)
    (plain,) = tmp_path.glob("*.plain.tfrecord")
    assert list(documents(plain)) == ["a few words"] * 20


def test_compressed_text_is_not_taken_for_records(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps({"text": WORDS}).encode()))
    assert format_of(file).name == "jsonl"
    file.rename(tmp_path / "words")
    assert format_of(tmp_path / "words").name != "tfrecord"


def test_the_bytes_of_a_reader_are_utf8_unless_the_tokenizer_is_bytes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reader(path):\n    yield from [b'caf\\xe9 ' * 20] * 40\n")
    name = f"{tmp_path / 'mine.py'}:reader"
    with pytest.raises(UserError, match="expected UTF-8 text, got other bytes in item 0 at byte 3"):
        prepare(config_of(tmp_path, path="x", pipeline=name, tokenizer="bpe"), progress=quiet)
    assert prepare(
        config_of(tmp_path, path="x", pipeline=name, tokenizer="bytes"), progress=quiet
    ).train_tokens
