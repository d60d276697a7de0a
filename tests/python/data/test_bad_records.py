"""data.bad_records: a record that cannot be read ends the start, or is dropped and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streaming_cases as cases
from chat_cases import chat_config, write_folder
from id_cases import BATCH, LENGTH, VOCAB, config_of, write_records
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.framing import framed
from mudd_core.config import load_config
from mudd_core.data.formats import FORMATS, documents
from mudd_core.data.formats.example import encoded
from mudd_core.data.formats.format import BadRecords
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.rows import Prepared
from text_settings import quiet

GOOD = [f"document {n}" for n in range(40)]
SHAPE = RowShape(LENGTH, BATCH, 0)
closed = cases.closed


def lines_of(texts: list[str]) -> list[bytes]:
    return [json.dumps({"text": text}).encode() + b"\n" for text in texts]


def write_jsonl(path: Path) -> int:
    lines = lines_of(GOOD)
    bad = [b"{not json\n", b'"a string"\n', b'{"text": 3}\n', b'{"other": "a"}\n', b'{"text": "\xff"}\n']
    path.write_bytes(b"".join([*lines[:5], *bad, *lines[5:], b'{"text": "half \\ud800"}\n']))
    return len(bad) + 1


def write_array(path: Path) -> int:
    path.write_text(
        json.dumps([{"text": GOOD[0]}, 7, *({"text": text} for text in GOOD[1:]), {"text": None}])
    )
    return 2


def write_table(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts: list[str | None] = [*GOOD[:7], None, *GOOD[7:], None]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path)
    else:
        table = pa.table({"text": texts})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return 2


def write_frames(path: Path) -> int:
    payloads = [framed(encoded({"text": text})) for text in GOOD]
    broken = bytearray(framed(encoded({"text": "broken"})))
    broken[-1] ^= 1
    others = [framed(encoded({"other": "a"})), framed(b"\xff"), framed(encoded({"text": b"\xff"}))]
    path.write_bytes(b"".join([*payloads[:4], bytes(broken), *others, *payloads[4:]]))
    return 4


FILES = {
    "a.jsonl": write_jsonl,
    "a.json": write_array,
    "a.parquet": write_table,
    "a.arrow": write_table,
    "a.tfrecord": write_frames,
}


@pytest.mark.parametrize("name", FILES)
def test_each_format_drops_single_records(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    count = FILES[name](path)
    bad = BadRecords(drops=True)
    for _ in range(2):  # a second pass over the file does not count the record again
        assert list(documents(path, bad=bad)) == GOOD
        assert bad.count == count
    assert str(path) in bad.first
    with pytest.raises(FormatError) as raised:
        list(documents(path))
    assert str(raised.value) == bad.first or "rows 0 to" in str(raised.value)


def test_lists_with_a_null_are_bad_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"ids": [[1, 2], [3, None], None, [], [4]]}), tmp_path / "a.parquet")
    bad = BadRecords(drops=True)
    found = FORMATS["parquet"].records(tmp_path / "a.parquet", ("ids",), bad)
    assert [np.asarray(record["ids"]).tolist() for record in found] == [[1, 2], [], [4]]
    assert bad.count == 2


@pytest.mark.parametrize("content", [b"\xff\xfea\0", b"PAR1 damaged"])
def test_damage_of_a_whole_file_still_ends_the_reading(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / ("a.jsonl" if content[:1] == b"\xff" else "a.parquet")
    path.write_bytes(content)
    with pytest.raises(FormatError):
        list(documents(path, bad=BadRecords(drops=True)))


def notes(data: Prepared) -> list[str]:
    return [line for line in data.describe() if "dropped" in line]


@pytest.mark.parametrize("pipeline", ["text", "pack", "rows", "blocks"])
def test_documents_train_without_the_bad_ones(
    pipeline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mudd_core.data.pipelines.rows.HELD_BATCHES", 1)
    count = write_jsonl(tmp_path / "bad.jsonl")
    (tmp_path / "good.jsonl").write_bytes(b"".join(lines_of(GOOD)))

    def data(name: str, *words: str) -> Prepared:
        base = [
            f"data.path={tmp_path}/{name}.jsonl",
            f"data.cache_dir={tmp_path}/cache",
            "data.tokenizer=bytes",
        ]
        base += [f"data.pipeline={pipeline}", f"data.eval_path={tmp_path}/good.jsonl", "data.cache=full"]
        return prepare(load_config("tiny.py", [*base, *words]))

    with pytest.raises(FormatError, match="line 6 is not JSON"):
        data("bad")
    found = data("bad", "data.bad_records=drop")
    note = f"{count} bad records dropped (data.bad_records=drop), the first: {tmp_path}/bad.jsonl at byte"
    assert note in capsys.readouterr().err
    assert note in notes(data("bad", "data.bad_records=drop"))[0]  # the cache exists already
    wanted = data("good").rows("train", SHAPE).arrays(0, 8)
    got = found.rows("train", SHAPE).arrays(0, 8)
    assert all((wanted[name] == got[name]).all() for name in wanted)
    assert not notes(data("good", "data.bad_records=drop"))


@pytest.mark.parametrize("pipeline", ["rows", "blocks"])
def test_a_stream_drops_them_too(
    pipeline: str, tmp_path: Path, closed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudd_core.data.pipelines.rows.HELD_BATCHES", 1)
    folder = tmp_path / "texts"
    folder.mkdir()
    count = write_jsonl(folder / "bad.jsonl")
    words = (f"data.eval_path={tmp_path}/good.jsonl", "data.bad_records=drop")
    (tmp_path / "good.jsonl").write_bytes(b"".join(lines_of(GOOD)))
    said: list[str] = []
    config = cases.config_of(pipeline, folder, "stream", *words)
    streamed = prepare(config, progress=lambda phase, *_: said.append(phase)).rows("train", cases.SHAPE)
    closed.append(streamed)
    full = cases.rows_of(cases.config_of(pipeline, folder, "full", *words))
    cases.require_same(full, streamed, 0, 2 * (full.rows // 4))
    assert any(f"{count} bad records dropped" in phase for phase in said)


def test_what_cannot_drop_records_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl")
    config = cases.config_of(
        "pack", tmp_path, "stream", "data.bad_records=drop", f"data.eval_path={tmp_path}"
    )
    with pytest.raises(UserError, match=r"by their index, which data\.bad_records=drop changes"):
        prepare(config, progress=quiet)
    for pipeline in ("megatron", "ids", "synthetic"):
        with pytest.raises(UserError, match=f"data.pipeline={pipeline} has no records that can be dropped"):
            load_config("tiny.py", [f"data.pipeline={pipeline}", "data.bad_records=drop"])
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UserError, match="plain files of text have no records"):
        prepare(load_config("tiny.py", [f"data.path={tmp_path}/a.txt", "data.bad_records=drop"]))


def test_records_of_ids_are_dropped(tmp_path: Path) -> None:
    good = [[n, n + 1, n + 2] for n in range(12)]
    write_records(tmp_path / "d" / "pile.tfrecord.b0", [*good[:5], [1, VOCAB], *good[5:]])
    write_records(tmp_path / "d" / "pile.tfrecord.v0", good[:4])
    words = ("data.eval_match=.v0", "data.format=tfrecord", "data.bad_records=drop")
    for _ in range(2):  # the second start reads the index
        data = prepare(config_of("pile", tmp_path / "d", *words))
        assert "1 bad record dropped" in notes(data)[0] and f"got {VOCAB}" in notes(data)[0]
        assert data.rows("train", SHAPE).arrays(0, 8)["inputs"][:, 0].tolist() == list(range(8))
    plain = prepare(config_of("pile", tmp_path / "d", *words[:2]))
    with pytest.raises(FormatError, match=f"got {VOCAB}"):
        plain.rows("train", SHAPE).arrays(0, 8)


def test_rows_of_features_are_dropped(tmp_path: Path) -> None:
    def row(first: int, length: int = LENGTH) -> str:
        ids = [first] * length
        return (
            json.dumps({"input_ids": ids, "attention_mask": [1] * length, "labels": [first] * LENGTH}) + "\n"
        )

    (tmp_path / "v.jsonl").write_text("".join(row(n) for n in range(4)))
    (tmp_path / "t.jsonl").write_text("".join([row(0), row(VOCAB), row(1, 3), "{\n", row(2), row(3), row(4)]))
    words = (f"data.eval_path={tmp_path}/v.jsonl", f"data.cache_dir={tmp_path}/cache")
    with pytest.raises(FormatError):
        prepare(config_of("features", tmp_path / "t.jsonl", *words))
    for _ in range(2):
        data = prepare(config_of("features", tmp_path / "t.jsonl", *words, "data.bad_records=drop"))
        assert "3 bad records dropped" in notes(data)[0]
        assert data.rows("train", SHAPE).arrays(0, 4)["inputs"][:, 0].tolist() == [0, 2, 3, 4]


def test_lines_of_conversations_are_dropped(tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    good = json.dumps({"messages": turns}) + "\n"
    (tmp_path / "chat.jsonl").write_text(good * 3 + "{half\n" + good)
    with pytest.raises(FormatError, match="line 4 is not JSON"):
        prepare(chat_config(tmp_path, tmp_path / "chat.jsonl"), progress=quiet)
    for _ in range(2):
        config = chat_config(tmp_path, tmp_path / "chat.jsonl", "data.bad_records=drop")
        assert "1 bad record dropped" in notes(prepare(config, progress=quiet))[0]


def test_a_line_that_is_not_utf8_names_the_command(tmp_path: Path) -> None:
    path = tmp_path / "a b.jsonl"
    path.write_bytes(lines_of(["fine"])[0] + b'{"text": "caf\xe9"}\n')
    with pytest.raises(
        FormatError, match=r"at byte 30: line 2 is not UTF-8 .* `iconv -f LATIN1 -t UTF-8 '.*a b\.jsonl'"
    ):
        list(documents(path))
