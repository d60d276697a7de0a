"""launch.py preprocess: records as the page describes them, complete files, any number of workers, wrong input."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.cli import main as cli
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.programs.jax_lm.preprocess import command, parquet
from mudd_core.programs.jax_lm.preprocess.command import find
from mudd_core.programs.jax_lm.preprocess.rows import Shape, rows_of
from mudd_core.programs.jax_lm.preprocess.vocabulary import read_vocabulary
from tiny_run import ROOT

BOS, EOS = 7, 8
Row = tuple[list[int], list[float], list[int]]


def expected(ids: list[int], shape: Shape) -> list[Row]:
    """Return the records of a document, as the page describes them."""
    m, x = shape.shortest - shape.reserved, shape.length - shape.reserved
    rows: list[Row] = []
    for i in range(0, len(ids), shape.stride):
        w = ids[i : i + x + 1]
        if len(w) <= m:
            continue
        q = [BOS, *w, EOS]
        real = len(q)
        q += [0] * (shape.length + 1 - len(q))
        masked = [j >= real if shape.by_position else q[j] == 0 for j in range(len(q))]
        rows.append(
            (
                q[: shape.length],
                [0.0 if masked[j] else 1.0 for j in range(shape.length)],
                [shape.ignore_label if masked[j + 1] else q[j + 1] for j in range(shape.length)],
            )
        )
    return rows


def made(ids: list[int], shape: Shape) -> list[Row]:
    rows = rows_of(ids, BOS, EOS, shape)
    return [
        (a.tolist(), b.tolist(), c.tolist())
        for a, b, c in zip(rows.input_ids, rows.attention_mask, rows.labels, strict=True)
    ]


@given(
    ids=st.lists(st.integers(0, 5), max_size=60),
    length=st.integers(1, 24),
    reserved=st.integers(0, 4),
    shortest=st.integers(0, 24),
    stride=st.integers(1, 30),
    by_position=st.booleans(),
)
def test_rows_are_those_of_the_page(
    ids: list[int], length: int, reserved: int, shortest: int, stride: int, by_position: bool
) -> None:
    shape = Shape(length, min(shortest, length), min(reserved, length), stride, -100, by_position)
    assert made(ids, shape) == expected(ids, shape)


def test_the_windows_of_the_documented_command() -> None:
    ids = list(range(1, 641))
    rows = made(ids, Shape())
    assert len(rows) == -(-(640 - 126) // 128)  # sequences that start more than 126 tokens before the end
    inputs, mask, labels = rows[0]
    assert inputs == [BOS, *ids[:255]] and labels == [*ids[:255], EOS] and mask == [1.0] * 256
    inputs, mask, labels = made(ids[:127], Shape())[0]  # the shortest sequence
    assert inputs == [BOS, *ids[:127], EOS] + [0] * 127 and mask == [1.0] * 129 + [0.0] * 127
    assert labels == [*ids[:127], EOS] + [-100] * 128
    assert made(ids[:126], Shape()) == []


def test_a_token_of_id_zero_is_masked_unless_positions_decide() -> None:
    shape = Shape(length=6, shortest=2, reserved=2, stride=4)
    assert made([3, 0, 4], shape) == [([7, 3, 0, 4, 8, 0], [1, 1, 0, 1, 1, 0], [3, -100, 4, 8, -100, -100])]
    shape = Shape(length=6, shortest=2, reserved=2, stride=4, by_position=True)
    assert made([3, 0, 4], shape) == [([7, 3, 0, 4, 8, 0], [1, 1, 1, 1, 1, 0], [3, 0, 4, 8, -100, -100])]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer and the splits of a small corpus."""
    folder = tmp_path_factory.mktemp("preprocess")
    rng = random.Random(5)
    words = ["".join(rng.choice("aeiounst") for _ in range(rng.randint(1, 6))) for _ in range(40)]
    lines = [" ".join(rng.choice(words) for _ in range(rng.choice((0, 2, 30, 90)))) for _ in range(600)]
    (folder / "tokenizer.json").write_bytes(train_bpe(["\n".join(lines).encode()], 1, 300))
    (folder / "data").mkdir()
    (folder / "data" / "wiki.train.txt").write_text("\n".join(lines) + "\n")
    (folder / "data" / "wiki.test.jsonl").write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in lines[:50])
    )
    table = pyarrow.table({"text": lines, "n": list(range(len(lines)))})
    pyarrow.parquet.write_table(table, folder / "data" / "wiki-validation-00000-of-00001.parquet")
    return folder


def flags(source: Path, out: Path, *more: str) -> list[str]:
    return [
        *("--tokenizer-model", str(source / "tokenizer.json"), "--dataset-name", str(source / "data")),
        *("--dataset-split-type", "train", "--output-path", str(out / "rows"), "--stride", "16"),
        *("--min-sequence-length", "16", "--max-sequence-length", "32", *more),
    ]


def read(out: Path) -> pyarrow.Table:
    """Return the records of all files of a run, in the order of the files' names."""
    tables = [pyarrow.parquet.read_table(file) for file in sorted(out.glob("rows-*-of-*"))]
    return pyarrow.concat_tables(tables)


def test_files_are_rows_in_the_order_of_the_documents(source: Path, tmp_path: Path) -> None:
    assert cli(["preprocess", *flags(source, tmp_path)]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["rows-00000-of-00001"]
    table = read(tmp_path)
    assert table.schema.names == ["input_ids", "attention_mask", "labels"]
    assert [str(field.type.value_type) for field in table.schema] == ["int64", "float", "int64"]
    meta = pyarrow.parquet.ParquetFile(tmp_path / "rows-00000-of-00001").metadata
    assert {meta.row_group(0).column(i).compression for i in range(3)} == {"UNCOMPRESSED"}
    vocabulary = read_vocabulary(str(source / "tokenizer.json"))
    assert vocabulary.bos == vocabulary.eos == 0
    encode = vocabulary.encoder()
    shape = Shape(32, 16, 2, 16)
    rows = [
        rows_of(ids, 0, 0, shape)
        for ids in encode((source / "data" / "wiki.train.txt").read_text().splitlines())
    ]
    for name in table.schema.names:
        wanted = np.concatenate([getattr(part, name) for part in rows])
        assert np.array_equal(np.array(table[name].to_pylist()), wanted), name
    assert table.num_rows > 300


def test_workers_and_shards_change_no_row(source: Path, tmp_path: Path) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    assert command.main(flags(source, one)) == 0
    more = ("--direct_running_mode", "multi_processing", "--direct_num_workers", "2", "--num-shards", "3")
    assert command.main(flags(source, many, *more)) == 0
    assert sorted(file.name for file in many.iterdir()) == [f"rows-{i:05}-of-00003" for i in range(3)]
    assert read(one).equals(read(many))
    assert all(pyarrow.parquet.read_metadata(file).num_rows for file in many.iterdir())


def test_row_groups_do_not_change_the_rows(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command.main(flags(source, whole))
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 20 * 32 * 50)
    command.main(flags(source, parts))
    meta = pyarrow.parquet.read_metadata(parts / "rows-00000-of-00001")
    assert meta.num_row_groups > 5 and meta.row_group(0).num_rows == 50
    assert read(whole).equals(read(parts))


@pytest.mark.parametrize("split", ["test", "validation"])
def test_records_of_other_formats_are_documents_too(source: Path, tmp_path: Path, split: str) -> None:
    lines = (source / "data" / "wiki.train.txt").read_text().split("\n")[:-1]
    found = list(find(str(source / "data"), "", split).texts())
    assert found == (lines[:50] if split == "test" else lines)
    assert (
        command.main(flags(source, tmp_path, "--dataset_split_type", split)) == 0
    )  # the name has underscores, and the last value is used


def test_arrow_folders_and_the_hubs_cache_are_documents_and_datasets_reads_the_rows(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lines = (source / "data" / "wiki.train.txt").read_text().split("\n")[:-1]
    saved = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": lines})})
    saved.save_to_disk(str(tmp_path / "disk"))
    assert list(find(str(tmp_path / "disk"), "", "train").texts()) == lines
    assert command.main(flags(source, tmp_path / "o", "--dataset-name", str(tmp_path / "disk"))) == 0
    found = datasets.Dataset.from_parquet(str(tmp_path / "o" / "rows*"))
    assert isinstance(found, datasets.Dataset)
    assert found.column_names == ["input_ids", "attention_mask", "labels"]
    assert found["labels"][:] == read(tmp_path / "o")["labels"].to_pylist()


def test_more_files_than_documents(source: Path, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("\n".join(["un autos " * 40] * 2))
    assert (
        command.main(
            flags(source, tmp_path / "o", "--dataset-name", str(tmp_path / "two.txt"), "--num-shards", "5")
        )
        == 0
    )
    assert len(list((tmp_path / "o").iterdir())) == 5 and read(tmp_path / "o").num_rows > 2


def test_a_killed_run_leaves_no_final_name_and_the_next_one_ends(source: Path, tmp_path: Path) -> None:
    text = (source / "data" / "wiki.train.txt").read_text()
    (tmp_path / "large.train.txt").write_text(text * 40)
    words = flags(source, tmp_path / "out", "--dataset-name", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "mudd_core.preprocess", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGKILL)
    process.stderr.read()
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL
    assert "documents/s, ETA " in first and "/24,000 documents" in first
    assert [file.name for file in (tmp_path / "out").iterdir()] == [".rows-00000-of-00001.partial"]
    assert command.main(flags(source, tmp_path / "out")) == 0
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["rows-00000-of-00001"]


def test_a_disk_that_is_full_ends_with_74_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(parquet.os, "fsync", full)
    with pytest.raises(SaveError, match="no space left"):
        command.main(flags(source, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_of_the_same_files_is_refused(source: Path, tmp_path: Path) -> None:
    with parquet.Shards(str(tmp_path / "rows"), 1, 32) as first:
        first.begin(0)
        with pytest.raises(UserError, match="another process is writing"):
            command.main(flags(source, tmp_path))
        first.commit()
    assert read(tmp_path).num_rows == 0


def test_a_file_that_is_no_parquet_is_damaged(source: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(FormatError, match=r"bad\.parquet at byte 0"):
        command.main(flags(source, tmp_path / "o", "--dataset-name", str(tmp_path / "bad.parquet")))
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\xfe\n")
    with pytest.raises(FormatError, match=r"bad\.txt at byte 5: expected UTF-8"):
        command.main(flags(source, tmp_path / "o", "--dataset-name", str(tmp_path / "bad.txt")))
    assert list((tmp_path / "o").iterdir()) == []


CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown flag": (("--strides", "3"), "unknown option '--strides'; did you mean '--stride'"),
    "runner flag": (("--direct_test", "3"), "unknown option '--direct-test'"),
    "mode": (
        ("--direct_running_mode", "cloud"),
        "expected one of in_memory, multi_threading, multi_processing",
    ),
    "workers": (("--direct_num_workers", "-1"), "direct_num_workers: expected 0"),
    "shards": (("--num-shards", "0"), "num-shards: expected a whole number from 1 to"),
    "stride": (("--stride", "0"), "stride: expected at least 1"),
    "reserved": (("--num-special-token-reserved", "33"), "reserved: expected 0 to 32"),
    "shortest": (("--min-sequence-length", "33"), "min-sequence-length: expected at most 32"),
    "no number": (("--stride", "many"), "stride"),
    "split": (("--dataset-split-type", "dev"), "there are wiki-validation-00000-of-00001.parquet"),
    "no data": (("--dataset-name", "nowhere"), "dataset-name: expected a folder or a data set of the hub"),
    "no tokenizer": (("--tokenizer-model", "nowhere"), "tokenizer-model: expected"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_arguments_end_with_2_and_leave_nothing(
    case: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, told = CASES[case]
    assert cli(["preprocess", *flags(source, tmp_path / "out", *words)]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_wrong_column_names_those_there(source: Path, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"body": ["x"], "title": ["y"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"expected a column .*, got 'text'; it has body, title"):
        command.main(flags(source, tmp_path / "o", "--dataset-name", str(tmp_path / "a.parquet")))
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(UserError, match="got 'text'; it has body"):
        command.main(flags(source, tmp_path / "o", "--dataset-name", str(tmp_path / "a.jsonl")))


def test_files_of_another_number_of_shards_are_not_mixed(source: Path, tmp_path: Path) -> None:
    command.main(flags(source, tmp_path, "--num-shards", "2"))
    with pytest.raises(UserError, match="rows-00000-of-00002 exists already"):
        command.main(flags(source, tmp_path))


def test_bos_and_eos_are_those_of_the_tokenizers_settings(tmp_path: Path) -> None:
    content: dict[str, Any] = json.loads(train_bpe([b"a few words for a start"], 1, 260))
    content["added_tokens"] = []
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = {t.replace("<|endoftext|>", "</s>"): i for t, i in vocab.items()}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="has no BOS token"):
        read_vocabulary(str(tmp_path))
    settings = {"bos_token": "</s>", "eos_token": {"content": "a", "lstrip": False}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    found = read_vocabulary(str(tmp_path))
    assert (found.bos, found.eos) == (0, vocab["a"])


def test_a_special_token_in_a_text_is_that_token(source: Path) -> None:
    encode = read_vocabulary(str(source / "tokenizer.json")).encoder()
    assert encode(["un<|endoftext|>un"])[0].count(0) == 1  # as in transformers' fast tokenizers


def test_a_missing_package_names_the_command(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"run setup seeds"):
        command.main(flags(source, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_fields_of_the_hub_and_buckets_are_taken(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that a missing file is downloaded only with hub.online=true."""
    asked = []
    monkeypatch.setattr(
        "mudd_core.data.sources.hub_datasets._of_hub",
        lambda settings, access: asked.append((settings.dataset, access.online)) or {"train": "", "test": ""},
    )
    words = flags(source, tmp_path, "--dataset-name", "wikitext", "--runner", "DirectRunner")
    for extra in ((), ("hub.online=true",), ("--hub.online=true",)):
        cli(["preprocess", *words, *extra])
    assert asked == [("wikitext", False), ("wikitext", True), ("wikitext", True)]
    capsys.readouterr()
    for extra, told in (
        (("train.steps=3",), "train.steps=3: expected hub.online or storage.map, got train.steps"),
        (("--runner", "DataflowRunner"), "--runner: expected DirectRunner or BundleBasedDirectRunner, got"),
    ):
        assert cli(["preprocess", *flags(source, tmp_path), *extra]) == 2
        assert told in capsys.readouterr().err
