"""Damaged and oversized files: flipped bits of ArrayRecord files, files that decompress into much memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.formats import arrayrecord, documents, format_of
from mudd_core.data.formats.packed import lacks_checksum

RECORDS = [b"record %d of a small file " % i * (i + 1) for i in range(3)]
MEMORY = 1200 << 20  # bytes of address space; pyarrow needs about half


def write_array(path: Path, options: str) -> bytes:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), options)
    for record in RECORDS:
        writer.write(record)
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("options", ["group_size:1", "group_size:2,transpose"])
def test_no_flipped_bit_loses_a_record_of_an_arrayrecord_file(options: str, tmp_path: Path) -> None:
    path = tmp_path / "a.arrayrecord"
    whole = write_array(path, options)
    refused = 0
    with path.open("r+b", buffering=0) as file:
        for at in (place for place, byte in enumerate(whole) if byte or place % 4096 < 64):
            for bit in range(8):
                file.seek(at)
                file.write(bytes([whole[at] ^ 1 << bit]))
                try:
                    assert list(arrayrecord.payloads(path)) == RECORDS, f"bit {bit} of byte {at}"
                except FormatError:
                    refused += 1
            file.seek(at)
            file.write(whole[at : at + 1])
    assert list(arrayrecord.payloads(path)) == RECORDS
    assert refused > 1000


def test_counts_are_found_across_blocks(tmp_path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    path = tmp_path / "a.arrayrecord"
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    sizes = [i * 977 % 70000 for i in range(60)] + [0] * 40
    for size in sizes:
        writer.write(bytes(size))
    writer.close()
    assert [len(record) for record in arrayrecord.payloads(path)] == sizes


def test_an_empty_arrayrecord_file_has_no_records(tmp_path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    ArrayRecordWriter(str(tmp_path / "a.arrayrecord"), "group_size:1").close()
    assert list(arrayrecord.payloads(tmp_path / "a.arrayrecord")) == []


def _gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b'{"text": "' + b"a" * (200 << 20) + b'"}\n', 9))


def _zstd(path: Path) -> None:
    import zstandard

    path.write_bytes(zstandard.compress(b'{"text": "' + b"a" * (250 << 20) + b'"}\n', 19))


def _parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.DictionaryArray.from_arrays(pa.array([0] * 512, pa.int32()), pa.array(["a" * (15 << 20)]))
    pq.write_table(pa.table({"text": text}), path, compression="zstd", store_schema=False)


READ = """
import resource, sys
from pathlib import Path
import pyarrow.parquet, zstandard
from mudd_core.data.formats import documents
from mudd_core.base.errors import FormatError, UserError
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), -1))
try:
    print(sum(len(text) for _, text in zip(range(3), documents(Path(sys.argv[1])))))
except FormatError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("write", "name", "answer"),
    [
        (_gzip, "a.jsonl.gz", "no text expands like that; unpack it (gunzip -k a.jsonl.gz)"),
        (_zstd, "a.jsonl.zst", "no text expands like that; unpack it (zstd -d a.jsonl.zst)"),
        (_parquet, "a.parquet", str(3 * (15 << 20))),
    ],
)
def test_small_files_that_expand_stay_in_bounded_memory(
    write: Callable[[Path], None], name: str, answer: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path)
    assert path.stat().st_size < 300_000
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(MEMORY)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert answer in done.stdout


def test_a_line_beyond_the_bound_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "short"}\n{"text": "')
        file.truncate((64 << 20) + 40)
    with pytest.raises(FormatError, match=r"at byte 18: a line has more than 64 MiB; split its document"):
        list(documents(path))


def test_text_of_few_words_is_read_from_a_compressed_file(tmp_path: Path) -> None:
    lines = b"".join(json.dumps({"text": f"the cat sat {i}"}).encode() + b"\n" for i in range(2000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    assert sum(1 for _ in documents(tmp_path / "a.jsonl.gz")) == 2000


def test_a_zstd_file_without_a_checksum_is_noticed(tmp_path: Path) -> None:
    import zstandard

    for checked in (False, True):
        packed = zstandard.ZstdCompressor(write_checksum=checked).compress(b'{"text": "a"}\n')
        (tmp_path / "a.jsonl.zst").write_bytes(packed)
        assert lacks_checksum(tmp_path / "a.jsonl.zst") is not checked


def _frame(lines: bytes, log: int = 20) -> bytes:
    """Return a frame without its decompressed size, so that the reader checks the window size."""
    import zstandard

    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=log)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    return bytes(packer.compress(lines) + packer.flush())


def _skipped(size: int, kind: int = 0) -> bytes:
    return (0x184D2A50 + kind).to_bytes(4, "little") + size.to_bytes(4, "little") + b"x" * size


@pytest.mark.parametrize("packed", ["first", "around", "alone"])
def test_skippable_frames_of_zstd_are_passed_over(packed: str, tmp_path: Path) -> None:
    frame = _frame(b'{"text": "a"}\n')
    whole = {
        "first": _skipped(4) + frame,
        "around": _skipped(0, 15) + _skipped(9) + frame + _skipped(3) + frame + _skipped(1),
        "alone": _skipped(5),
    }[packed]
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(whole)
    assert format_of(path).name == "jsonl"
    assert list(documents(path)) == ["a"] * {"first": 1, "around": 2, "alone": 0}[packed]


@pytest.mark.parametrize("log", [28, 31])
def test_a_large_window_of_zstd_names_the_command(log: int, tmp_path: Path) -> None:
    path = tmp_path / "a b.jsonl.zst"
    path.write_bytes(_frame(b'{"text": "a"}\n', 27))
    assert list(documents(path)) == ["a"]
    path.write_bytes(_skipped(4) + _frame(b'{"text": "a"}\n', log))
    with pytest.raises(UserError, match=rf"zstd -d --long={log} '.*/a b\.jsonl\.zst', then name a b\.jsonl$"):
        list(documents(path))
    path.write_bytes(_frame(b'{"text": "a"}\n') + _frame(b'{"text": "a"}\n', log))
    with pytest.raises(FormatError, match=r"unpack the file: zstd -d --long=31 '"):
        list(documents(path))
