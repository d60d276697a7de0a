"""The documents of a split: one for each line of a text file, or for each record of another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import open_binary
from mudd_core.tools.preprocess.parquet import pyarrow

COLUMN = "text"
_TEXT = (".txt", ".text", ".tokens", ".raw")
_SPLITS = ("train", "test", "valid", "validation", "dev", "eval")


@dataclass(frozen=True)
class Source:
    """The files of a split in the order of their names."""

    files: tuple[Path, ...]

    def texts(self) -> Iterator[str]:
        """The documents, in the order of the files and of their places in them."""
        for file in self.files:
            yield from reader_of(file)(file)

    def count(self) -> int:
        """Number of documents: one pass over the files."""
        return sum(1 for _ in self.texts())


def reader_of(file: Path) -> Callable[[Path], Iterator[str]]:
    """The reader for the ending of a file."""
    return _READERS.get(file.suffix.lower(), _lines)


def find(name: str, part: str, split: str) -> Source:
    """The files of a file, or of a split of a folder; UserError where there are none."""
    path = local(name, "[preprocess] --dataset-name")
    if path.is_file():
        return Source((path,))
    if not path.is_dir():
        raise UserError(
            f"[preprocess] --dataset-name: expected a file, a folder or a data set on this machine, got '{name}'"
        )
    folder = path / part if part and (path / part).is_dir() else path
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _is_data(file, folder))
    own = [file for file in files if split in _words(file.relative_to(folder))]
    named = any(word in _SPLITS for file in files for word in _words(file.relative_to(folder)))
    chosen = own or ([] if named else files)
    if not chosen:
        there = ", ".join(file.relative_to(folder).as_posix() for file in files[:8]) or "no data file"
        raise UserError(
            f"[preprocess] --dataset-split-type: expected a split of {folder}, got '{split}'; there are {there}"
        )
    return Source(tuple(chosen))


def _is_data(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and (file.suffix.lower() in _READERS or file.suffix.lower() in _TEXT)


def _words(name: Path) -> set[str]:
    """The parts of a name such as wiki.train.txt, train-00000-of-00002.parquet or train/data.arrow."""
    text = name.as_posix().lower()
    for mark in "/-_":
        text = text.replace(mark, ".")
    return set(text.split("."))


def _lines(file: Path) -> Iterator[str]:
    """A document for each line, without its end."""
    for line, offset in _raw_lines(file):
        yield _decoded(line, file, offset)


def _json_lines(file: Path) -> Iterator[str]:
    for line, offset in _raw_lines(file):
        if not line.strip():
            continue
        try:
            record = json.loads(_decoded(line, file, offset))
        except (ValueError, RecursionError) as error:
            raise FormatError(str(file), offset, f"expected a line of JSON: {error}") from None
        yield _text_in(record, file)


def _raw_lines(file: Path) -> Iterator[tuple[bytes, int]]:
    offset = 0
    try:
        with open_binary(file) as stream:
            for line in stream:
                yield line.rstrip(b"\r\n"), offset
                offset += len(line)
    except OSError as error:
        raise UserError(f"[preprocess] cannot read {file}: {error.strerror}") from error


def _decoded(line: bytes, file: Path, offset: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(str(file), offset + error.start, "expected UTF-8 text") from None


def _text_in(record: Any, file: Path) -> str:
    text = record.get(COLUMN) if isinstance(record, dict) else None
    if not isinstance(text, str):
        there = f"there are {', '.join(record)}" if isinstance(record, dict) else "it is no object"
        raise UserError(f"[preprocess] {file}: expected records with a string '{COLUMN}'; {there}")
    return text


def _parquet(file: Path) -> Iterator[str]:
    arrow = pyarrow()
    try:
        with arrow.parquet.ParquetFile(file) as table:
            if COLUMN not in table.schema_arrow.names:
                there = ", ".join(table.schema_arrow.names)
                raise UserError(f"[preprocess] {file}: expected a column '{COLUMN}'; there are {there}")
            for batch in table.iter_batches(columns=[COLUMN]):
                yield from (text or "" for text in batch.column(0).to_pylist())
    except (OSError, arrow.ArrowException) as error:
        raise FormatError(str(file), 0, f"expected a Parquet file: {error}") from None


_READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".json": _json_lines,
}
