"""Readers of files, tested with files that the standard libraries wrote and with damaged files."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launched import launched
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.framing import framed
from mudd_core.data.formats import FORMATS, documents, format_of, rows
from mudd_core.data.formats.example import encoded, features, read_varints, varints
from mudd_core.data.formats.megatron import head_bytes, kind_for, read_index

TEXTS = ["The river é", "", "a\nb", "x" * 3000]
IDS = [np.array(v, np.int64) for v in ([1, 2, 300], [0, 70000, 2**40], [5])]


def write_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": TEXTS[:3], "input_ids": [list(v) for v in IDS], "flag": [True, False, True]})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=["text"], row_group_size=2)


def write_arrow(path: Path) -> None:
    import pyarrow as pa

    table = pa.table(
        {"text": TEXTS[:3], "input_ids": pa.array([list(v) for v in IDS], pa.large_list(pa.int64()))}
    )
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_jsonl(path: Path) -> None:
    lines = [json.dumps({"text": t, "input_ids": v.tolist()}) for t, v in zip(TEXTS, IDS, strict=False)]
    path.write_text("\n".join(lines) + "\n\n")


def examples() -> list[bytes]:
    return [encoded({"text": t, "input_ids": v}) for t, v in zip(TEXTS, IDS, strict=False)]


def write_tfrecord(path: Path) -> None:
    path.write_bytes(b"".join(map(framed, examples())))


def write_arrayrecord(path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for example in examples():
        writer.write(example)
    writer.close()


WRITERS = {
    "parquet": write_parquet,
    "arrow": write_arrow,
    "jsonl": write_jsonl,
    "tfrecord": write_tfrecord,
    "arrayrecord": write_arrayrecord,
}


@pytest.mark.parametrize("name", WRITERS)
def test_texts_and_ids_are_read_by_ending_and_by_first_bytes(name: str, tmp_path: Path) -> None:
    for path in (tmp_path / f"data.{name}", tmp_path / "data"):
        WRITERS[name](path)
        assert format_of(path).name == name
        assert list(documents(path)) == TEXTS[:3]
        assert [v.tolist() for v in rows(path)] == [v.tolist() for v in IDS]
        assert list(documents(path))[1:] == TEXTS[1:3]


@pytest.mark.parametrize("name", WRITERS)
def test_a_wrong_column_is_refused_with_the_names_that_are_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{name}"
    WRITERS[name](path)
    with pytest.raises(UserError, match=r"got 'txt'; it has .*input_ids.*text"):
        list(documents(path, "txt"))


def test_conversations_are_named_where_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    done = launched(tmp_path, "data", "--config=tiny.py", "data.path=chat.jsonl")
    told = "chat.jsonl, got 'text'; it has messages; data.pipeline=chat reads conversations"
    assert done.returncode == 2 and done.stderr.endswith(f"{told}\n"), done.stderr


@pytest.mark.parametrize("name", ["tfrecord", "arrayrecord", "parquet", "jsonl"])
def test_changed_and_cut_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{name}"
    WRITERS[name](path)
    whole = path.read_bytes()
    at = whole.index("The river é".encode() if name != "jsonl" else b"{") if name != "arrayrecord" else 190
    changed = bytearray(whole)
    changed[at] ^= 0x40
    for data in (bytes(changed), whole[: len(whole) // 2], whole[:20]):
        path.write_bytes(data)
        with pytest.raises(FormatError) as error:
            list(documents(path))
        assert error.value.file == str(path)
        assert error.value.reason


def test_tfrecord_checksums_name_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_tfrecord(path)
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="at byte 0: the checksum of a record's length does not match"):
        list(documents(path))


def test_the_stock_library_reads_our_tfrecord_and_we_read_its(tmp_path: Path) -> None:
    from tfrecord.reader import tfrecord_loader
    from tfrecord.writer import TFRecordWriter

    path = tmp_path / "a.tfrecord"
    write_tfrecord(path)
    theirs = list(tfrecord_loader(str(path), None, {"text": "byte", "input_ids": "int"}))
    assert [bytes(row["text"]).decode() for row in theirs] == TEXTS[:3]
    assert [list(row["input_ids"]) for row in theirs] == [v.tolist() for v in IDS]
    writer = TFRecordWriter(str(tmp_path / "b.tfrecord"))
    for text, ids in zip(TEXTS, IDS, strict=False):
        writer.write(
            {"text": (text.encode(), "byte"), "input_ids": (ids.tolist(), "int"), "f": ([0.5], "float")}
        )
    writer.close()
    assert list(documents(tmp_path / "b.tfrecord")) == TEXTS[:3]
    assert [v.tolist() for v in rows(tmp_path / "b.tfrecord")] == [v.tolist() for v in IDS]


def test_numbers_of_examples_packed_or_one_by_one() -> None:
    values = np.array([0, 1, 127, 128, 2**32, 2**63 - 1, -1, -(2**63)], np.int64)
    data = varints(values)
    assert read_varints(data, 0, len(data)).tolist() == values.tolist()
    assert varints(values[:6]) == b"".join(varints(values[i : i + 1]) for i in range(6))
    single = b"".join(b"\x08" + varints(values[i : i + 1]) for i in range(8))
    feature = b"\x1a" + bytes([len(single)]) + single
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    body = b"\x0a" + bytes([len(entry)]) + entry
    message = b"\x0a" + bytes([len(body)]) + body
    got = features(message)["a"]
    assert isinstance(got, np.ndarray)
    assert got.tolist() == values.tolist()


@pytest.mark.parametrize("packed", ["gz", "zst"])
def test_compressed_lines(packed: str, tmp_path: Path) -> None:
    import zstandard

    plain = tmp_path / "a.jsonl"
    write_jsonl(plain)
    pack = gzip.compress if packed == "gz" else zstandard.compress
    path = tmp_path / f"a.json.{packed}"
    path.write_bytes(pack(plain.read_bytes()))
    assert list(documents(path)) == TEXTS[:3]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FormatError, match="compressed data are damaged"):
        list(documents(path))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2: expected an object, got list"),
        ("[" * 100000, "line 2 is not JSON"),
        ('{"id": 1}', "line 2: key 'text' is missing"),
        ('{"text": 5}', "line 2: key 'text': expected text"),
        ('{"text": "\\ud800"}', "an unpaired surrogate"),
    ],
)
def test_bad_lines_are_named(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' + line + "\n")
    with pytest.raises(FormatError, match=reason):
        list(documents(path))


ARRAY = [{"text": "ä" * 40_000}, {"text": "two"}, {"text": "漢字"}]


@pytest.mark.parametrize("indent", [None, 4])
def test_an_array_of_objects_is_read_as_lines_are(indent: int | None, tmp_path: Path) -> None:
    text = json.dumps(ARRAY, indent=indent, ensure_ascii=False)
    plain, marked, packed = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json.gz"
    plain.write_text(text)
    marked.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\n")
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, marked, packed):
        assert list(documents(path)) == [record["text"] for record in ARRAY]
    assert format_of(plain).by_number is not None
    assert "is one array of JSON" in format_of(plain).by_number.fault(plain)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rest", "reason", "offset"),
    [
        ("", "element 1 of the array: expected , or ] after it, got the end of the file", 14),
        (', {"text": "b"', "element 2 of the array: it is not JSON", 16),
        (', {"text": "b"} {', "element 2 of the array: expected , or ] after it, got '{'", 30),
        (", 3]", "element 2 of the array: expected an object, got int", 16),
        ("] x", "element 1 of the array: expected nothing after the array", 16),
        (', {"text": 5}]', "element 2 of the array: key 'text': expected text", 16),
        (", " + "[" * 100_000, "element 2 of the array: ", 16),
    ],
)
def test_a_damaged_array_is_named_with_its_place(rest: str, reason: str, offset: int, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a"}' + rest)
    with pytest.raises(FormatError, match=re.escape(reason)) as caught:
        list(documents(path))
    assert f"byte {offset}" in str(caught.value), caught.value


def test_an_array_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": "\xff"}]')
    with pytest.raises(FormatError, match=r"byte 11: it is not UTF-8 .* `iconv -f LATIN1 -t UTF-8 "):
        list(documents(path))


def test_a_first_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"text": "\xff"}\n{"text": "a"}\n')
    with pytest.raises(FormatError, match=r"byte 10: line 1 is not UTF-8 .* `iconv -f LATIN1 -t UTF-8 "):
        list(documents(path))


def write_indexed(name: Path, sequences: list[list[int]], vocab_size: int = 100) -> None:
    code, kind = kind_for(vocab_size)
    sizes = np.array([len(s) for s in sequences], np.int64)
    Path(f"{name}.bin").write_bytes(b"".join(np.array(s, kind).tobytes() for s in sequences))
    Path(f"{name}.idx").write_bytes(head_bytes(code, sizes, np.arange(len(sequences) + 1)))


def test_indexed_data_sets(tmp_path: Path) -> None:
    write_indexed(tmp_path / "a", [[1, 2, 3], [4], [], [5, 6]])
    assert [v.tolist() for v in rows(tmp_path / "a.bin")] == [[1, 2, 3], [4], [], [5, 6]]
    assert format_of(tmp_path / "a.idx").name == "megatron"
    data = (tmp_path / "a.idx").read_bytes()
    assert data[:9] == b"MMIDIDX\0\0"
    assert data[9:34] == bytes([1, *[0] * 7, 8, 4, *[0] * 7, 5, *[0] * 7])


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 0, "MMIDIDX"),
        (17, 6, "type of whole numbers"),
        (18, 9, "do not fit"),
        (37, 255, "length"),
        (51, 1, "truncated"),
        (90, 9, "the document indices do not increase"),
        (50, 99, "truncated"),
    ],
)
def test_a_damaged_index_is_refused(place: int, value: int, reason: str, tmp_path: Path) -> None:
    write_indexed(tmp_path / "a", [[1, 2, 3], [4], [], [5, 6]])
    data = bytearray((tmp_path / "a.idx").read_bytes())
    data[place] = value
    (tmp_path / "a.idx").write_bytes(data)
    with pytest.raises(FormatError, match=reason):
        read_index(tmp_path / "a")


def test_a_cut_bin_is_refused(tmp_path: Path) -> None:
    write_indexed(tmp_path / "a", [[1, 2, 3], [4]])
    (tmp_path / "a.bin").write_bytes(bytes(5))
    with pytest.raises(FormatError, match=r"not within the \.bin of 5 bytes"):
        list(rows(tmp_path / "a.bin"))


def test_plain_ids_and_arrays(tmp_path: Path) -> None:
    np.array([1, 2, 65535], "<u2").tofile(tmp_path / "a.u16")
    np.save(tmp_path / "a.npy", np.array([7, 8], np.int32))
    assert next(rows(tmp_path / "a.u16")).tolist() == [1, 2, 65535]
    assert next(rows(tmp_path / "a.npy")).tolist() == [7, 8]
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-1])
    with pytest.raises(FormatError, match="expected"):
        next(rows(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    ("module", "ending"),
    [
        ("pyarrow.parquet", "parquet"),
        ("pyarrow.ipc", "arrow"),
        ("zstandard", "jsonl"),
        ("array_record.python.array_record_module", "arrayrecord"),
    ],
)
def test_a_missing_package_names_its_extra(
    module: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"run setup seeds"):
        list(documents(path))


def test_a_null_and_a_column_of_another_type_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values: dict[str, Any] = {"text": ["a", None], "n": [1, 2]}
    pq.write_table(pa.table(values), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="'text' has a null in rows 0 to 1"):
        list(documents(tmp_path / "a.parquet"))
    with pytest.raises(FormatError, match="'n': expected text or lists of numbers, got int64"):
        list(documents(tmp_path / "a.parquet", "n"))


def test_views_of_arrow_are_read(tmp_path: Path) -> None:
    """Use view lists that are out of order, overlap or are null, and slices that start inside them."""
    import pyarrow as pa

    views = pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array([5, 6, 7], pa.int32()))
    large = pa.LargeListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array([0.5, 0.25, 2.0], pa.float32()))
    table = pa.table(
        {
            "text": pa.array(["a", "a longer text than twelve bytes", ""], pa.string_view()),
            "raw": pa.array([b"a", b"b", b"c"], pa.binary_view()),
            "ids": views,
            "weights": large,
            "turns": pa.array(
                [[{"role": "u"}], [], [{"role": "v"}]], pa.list_(pa.struct([("role", pa.string_view())]))
            ),
        }
    )
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table.to_batches()[0])
        writer.write_batch(table.slice(1).to_batches()[0])
    texts = ["a", "a longer text than twelve bytes", ""]
    assert list(documents(path)) == texts + texts[1:]
    assert list(documents(path, "raw")) == ["a", "b", "c", "b", "c"]
    assert [ids.tolist() for ids in rows(path, "ids")] == [[7], [5, 6], [6, 7], [5, 6], [6, 7]]
    records = list(FORMATS["arrow"].records(path, ("weights",)))
    assert [np.asarray(one["weights"]).tolist() for one in records][:2] == [[2.0], [0.5, 0.25]]
    objects = FORMATS["arrow"].objects
    assert objects is not None
    assert [(one["text"], one["ids"], one["turns"]) for one in objects(path)][2] == (
        "",
        [6, 7],
        [{"role": "v"}],
    )
