"""The documents of a batch are the ones in their files, for every pipeline that has documents or ids in files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mixture_cases
import mudd_core as mc
import streaming_cases
from chat_cases import chat_config, write_folder, write_jsonl
from id_cases import BATCH, LENGTH, VOCAB, words_of, write_indexed, write_records
from mudd_core.config import Config, load_config
from mudd_core.run.build.batch_rows import BatchRow

small = streaming_cases.small
Content = dict[tuple[str, int | None], str]  # by file name and record


def texts(count: int, seed: int) -> list[str]:
    """Return different strings, each with its number."""
    draw = random.Random(seed)
    return [
        f"{seed}.{number} " + " ".join(draw.choice("abcdefg") * 3 for _ in range(draw.randint(0, 12)))
        for number in range(count)
    ]


def jsonl(folder: Path, counts: tuple[int, ...] = (50, 3, 60)) -> Content:
    """Write jsonl files; return the text of each record."""
    folder.mkdir(parents=True, exist_ok=True)
    found: Content = {}
    for number, count in enumerate(counts):
        rows = texts(count, number)
        (folder / f"{number}.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in rows))
        found |= {(f"{number}.jsonl", record): one for record, one in enumerate(rows, 1)}
    return found


@dataclass(frozen=True)
class Kind:
    """A kind of data. write: writes them below a folder and returns their content. arguments: of the config."""

    write: Callable[[Path], Content]
    arguments: tuple[str, ...]


def parquet(folder: Path) -> Content:
    rows = texts(70, 4)
    folder.mkdir()
    pq.write_table(pa.table({"text": rows}), folder / "a.parquet", row_group_size=20)
    return {("a.parquet", record): one for record, one in enumerate(rows, 1)}


def one_text(folder: Path) -> Content:
    """Write one file of text, which is cut into documents."""
    folder.mkdir()
    whole = "\n\n".join(texts(90, 5))
    (folder / "all.txt").write_text(whole)
    return {("all.txt", None): whole}


def text_files(folder: Path) -> Content:
    folder.mkdir()
    rows = texts(40, 6)
    for number, one in enumerate(rows):
        (folder / f"{number}.txt").write_text(one)
    return {(f"{number}.txt", None): one for number, one in enumerate(rows)}


KINDS = {
    "jsonl": Kind(jsonl, ("data.pipeline=text",)),
    "parquet": Kind(parquet, ("data.pipeline=text",)),
    "a folder of text": Kind(text_files, ("data.pipeline=text",)),
    "a file of text": Kind(one_text, ("data.pipeline=text",)),
    "packed parts of a file": Kind(one_text, ("data.pipeline=pack", "data.cache=stream")),
    "packed text files": Kind(text_files, ("data.pipeline=pack",)),
    **{
        f"{pipeline}, {cache}": Kind(jsonl, (f"data.pipeline={pipeline}", f"data.cache={cache}"))
        for pipeline in ("pack", "rows", "blocks")
        for cache in ("full", "stream")
    },
}


def config_of(folder: Path, *words: str) -> Config:
    sizes = ("d_model=16", "n_layer=1", "n_head=2", "d_ff=32", "vocab_size=257")
    base = [
        f"data.path={folder}",
        f"data.cache_dir={folder.parent}/cache",
        "data.tokenizer=bytes",
        *(f"model.{size}" for size in sizes),
        "train.steps=9",
        "train.batch_size=2",
        "train.seq_len=48",
        "train.logical_shards=2",
        "train.threads=1",
        "data.buffer=5",
        "eval.off=true",
    ]
    return load_config("tiny.py", [*base, *words])


def batches(config: Config, folder: Path) -> Iterator[list[BatchRow]]:
    """Yield the sequences of each update of a run."""
    with mc.Trainer(config, folder) as trainer:
        for _ in range(4):
            yield trainer.batch_text(files=True)
            trainer.step()


def plain(text: str | None) -> str:
    """Return the text of a document without the ids that a pipeline adds."""
    assert text is not None
    return text.replace("<|endoftext|>", "").strip("\0")


@pytest.mark.parametrize("name", KINDS)
def test_each_document_is_a_part_of_its_record(name: str, tmp_path: Path) -> None:
    kind, seen = KINDS[name], 0
    content = kind.write(tmp_path / "data")
    for rows in batches(config_of(tmp_path / "data", *kind.arguments), tmp_path / "run"):
        for row in rows:
            assert row.documents[0].start == 0
            for one, after in zip(row.documents, row.documents[1:], strict=False):
                assert one.end == after.start
            for one in row.documents:
                assert one.file is not None, one
                record = content[Path(one.file).name, one.record]
                assert plain(one.text) in record[one.byte or 0 :], (one, record)
                assert (one.byte is None) == (Path(one.file).name != "all.txt")
                seen += len(plain(one.text)) > 3
    assert seen > 6


def test_a_mixture_finds_the_files_of_each_source(tmp_path: Path) -> None:
    files = mixture_cases.write_sources(tmp_path / "text")
    content = jsonl(files / "lines", (80,))
    words = ["train.steps=8", f"data.sources.lines.path={files}/lines"]
    config = mixture_cases.mix_config(files, *words, mix="web:0.5,lines:0.5")
    sources = set()
    for rows in batches(config, tmp_path / "run"):
        for row in rows:
            for one in row.documents:
                assert one.file is not None
                place = Path(one.file)
                whole = place.read_text() if row.source == "web" else content[place.name, one.record]
                assert plain(one.text) in whole and place.parent.name in ("web", "lines")
                sources.add(row.source)
    assert sources == {"web", "lines"}


def chats(folder: Path, *, pairs: bool) -> Content:
    """Write two files of conversations, or of pairs of answers, with different answers."""
    draw, found = random.Random(2), Content()
    for file, count in enumerate((7, 30)):
        records: list[dict[str, object]] = []
        for number in range(1, count + 1):
            asked, answer = f"what is {file}.{number}", f"it is {file}.{number} " + "x" * draw.randint(1, 9)
            other = {"chosen": [{"role": "assistant", "content": answer}]}
            other |= {"rejected": [{"role": "assistant", "content": f"not {file}.{number}"}]}
            turns = [{"role": "user", "content": asked}]
            one = {"prompt": turns, **other} if pairs else {"messages": [*turns, *other["chosen"]]}
            records.append({**one})
            found[f"{file}.jsonl", number] = json.dumps(one)
        write_jsonl(folder / f"{file}.jsonl", records)
    return found


@pytest.mark.parametrize("pairs", [False, True])
def test_examples_and_pairs_name_their_record(pairs: bool, tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "llama3")
    content = chats(tmp_path / "data", pairs=pairs)
    words = ["train.seq_len=96", "train.steps=9"]
    words += (
        ["loss.kind=dpo", "tune.method=lora", "lora.rank=2", "loss.packed_pairs=2", "train.logical_shards=2"]
        if pairs
        else []
    )
    if pairs:
        base = chat_config(tmp_path, tmp_path / "data", "train.steps=1").replace({"loss.kind": "tokens"})
        chats(tmp_path / "plain", pairs=False)
        with mc.Trainer(base.replace({"data.path": str(tmp_path / "plain")}), tmp_path / "base") as trainer:
            trainer.fit(progress=False)
        words.append(f"start.load_parameters_path={tmp_path / 'base'}")
    numbers = set()
    for rows in batches(chat_config(tmp_path, tmp_path / "data", *words), tmp_path / "run"):
        for row in rows:
            assert row.answer == (("chosen", "rejected")[row.row % 2] if pairs else None)
            for one in row.documents:
                assert one.file is not None and one.text is not None
                record = content[Path(one.file).name, one.record]
                asked = f"what is {Path(one.file).stem}.{one.record}<"
                answer = (
                    f"{'not' if row.answer == 'rejected' else 'it is'} {Path(one.file).stem}.{one.record}"
                )
                assert asked in one.text and answer in one.text and answer in record
                numbers.add(one.number)
    assert len(numbers) > 10


def ids_of(pipeline: str, folder: Path) -> tuple[list[str], dict[tuple[str, int | None], list[int]]]:
    """Write data of ids; return the arguments of a config, and the ids of each record or file."""
    draw = np.random.default_rng(8)

    def lists(count: int, low: int, high: int) -> list[list[int]]:
        return [draw.integers(1, VOCAB, draw.integers(low, high)).tolist() for _ in range(count)]

    if pipeline == "pile":
        rows = {n: lists(count, 9, 14) for n, count in ((0, 19), (1, 17))}
        for n, some in rows.items():
            write_records(folder / f"pile.tfrecord.b{n}", some)
        found = {
            (f"pile.tfrecord.b{n}", at): one for n, some in rows.items() for at, one in enumerate(some, 1)
        }
        return words_of(pipeline, folder, "data.format=tfrecord", "data.buffer=3", "eval.off=true"), found
    if pipeline == "megatron":
        rows = {0: lists(40, 5, 20)}
        write_indexed(folder / "x", rows[0])
        write_indexed(folder.parent / "held", lists(9, 5, 20))
        words = words_of(pipeline, folder, f"data.eval_path={folder.parent}/held", "eval.off=true")
        return words, {("x.bin", at): one for at, one in enumerate(rows[0], 1)}
    folder.mkdir()
    if pipeline == "ids":
        files = {"a.bin": draw.integers(0, VOCAB, 150), "b.u16": draw.integers(0, VOCAB, 170)}
        for name, ids in files.items():
            ids.astype("<u2").tofile(folder / name)
        return words_of(pipeline, folder, "eval.off=true"), {
            (name, None): ids.tolist() for name, ids in files.items()
        }
    found = {}
    for name, count in (("train-0", 9), ("train-1", 12), ("valid-0", 4)):
        ids = draw.integers(1, VOCAB, (count, LENGTH))
        mask = np.ones((count, LENGTH), np.float32)
        table = {"input_ids": ids.tolist(), "attention_mask": mask.tolist(), "labels": ids.tolist()}
        pq.write_table(pa.table(table), folder / name)
        found |= {(name, at): one for at, one in enumerate(ids.tolist(), 1)}
    return words_of(pipeline, folder, "data.eval_match=valid-0", "data.format=parquet"), found


@pytest.mark.parametrize("pipeline", ["pile", "megatron", "ids", "features"])
def test_ids_are_a_part_of_their_record(pipeline: str, tmp_path: Path) -> None:
    words, content = ids_of(pipeline, tmp_path / "data")
    seen = set()
    with mc.Trainer(load_config("tiny.py", [*words, "train.steps=9"]), tmp_path / "run") as trainer:
        for _ in range(5):
            arrays, rows = trainer._next_batch()[0], trainer.batch_text(files=True)
            assert len(rows) == BATCH
            for row in rows:
                for at, one in enumerate(row.documents):
                    assert one.file is not None and one.text is None
                    whole = content[Path(one.file).name, one.record]
                    begin = one.start + (at > 0)
                    some = arrays["inputs"][row.row][begin : one.end + (at < len(row.documents) - 1)].tolist()
                    first = one.first_id or 0
                    places = range(len(whole)) if one.first_id is None else [first]
                    assert any(whole[place : place + len(some)] == some for place in places), (one, some)
                    seen.add((one.file, one.record))
            trainer.step()
    assert len(seen) > 1
