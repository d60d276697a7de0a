"""The documents of a split: one for each line of a text file, or for each record of another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import open_binary
from mudd_core.config.data import DataConfig
from mudd_core.data import formats
from mudd_core.data.sources.access import LOCAL, Access
from mudd_core.data.sources.hub_datasets import with_dataset

COLUMN = "text"
_TEXT = (".txt", ".text", ".tokens", ".raw")
_SPLITS = ("train", "test", "valid", "validation", "dev", "eval")
_RECORDS = [one for one in formats.FORMATS.values() if one.name != "text"]
_DATA = (*_TEXT, *(ending for one in _RECORDS for ending in one.endings))


@dataclass(frozen=True)
class Source:
    """The files of a split in the order of their names."""

    files: tuple[Path, ...]

    def texts(self) -> Iterator[str]:
        """The documents, in the order of the files and of their places in them."""
        for file in self.files:
            own = file.name.lower().endswith(_TEXT) or formats.format_of(file).name == "text"
            yield from _lines(file) if own else formats.documents(file, COLUMN)

    def count(self) -> int:
        """Number of documents: one pass over the files."""
        return sum(1 for _ in self.texts())


def find(name: str, part: str, split: str, access: Access = LOCAL) -> Source:
    """The files of a file, of a split of a folder or of a data set of the hub; UserError where there are none."""
    path = local(access.local(name, "[preprocess] --dataset-name"), "[preprocess] --dataset-name")
    if path.is_file():
        return Source((path,))
    if path.is_dir():
        return _in_folder(path, part, split)
    try:
        found = with_dataset(DataConfig(dataset=name, dataset_config=part, split=split), access)
    except UserError as error:
        text = str(error).replace("[data.dataset]", "[preprocess] --dataset-name:")
        raise UserError(text.replace("[data.split]", "[preprocess] --dataset-split-type:")) from None
    return Source(tuple(Path(file) for file in found.path.split(",")))


def _in_folder(path: Path, part: str, split: str) -> Source:
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
    return not hidden and file.name.lower().endswith(_DATA)


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
