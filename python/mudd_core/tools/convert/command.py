"""The command `data convert`: to one file, or to a folder of files for other programs."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from mudd_core.base.errors import SaveError, UserError
from mudd_core.data.formats import FORMATS, only
from mudd_core.data.progress import ConsoleProgress
from mudd_core.data.sources.access import Access
from mudd_core.data.sources.selection import selected
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.tools.convert.arguments import Asked, parsed
from mudd_core.tools.convert.items import (
    ArrayRecordWriter,
    IndexedWriter,
    LinesWriter,
    Reading,
    TfrecordWriter,
    Writer,
    other_columns,
    payloads,
    texts,
    token_ids,
)
from mudd_core.tools.convert.one_file import write_one
from mudd_core.tools.convert.sources import sources_of

_DEFAULT = {"tfrecord": "arrayrecord", "megatron": "tfrecord", "tokens": "tfrecord", "text": "megatron"}
_C4_VALIDATION = 24_567
ItemT = TypeVar("ItemT")  # an item of a file: payload, document or ids


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = parsed(words)
    if asked.to_file:
        return _to_one_file(asked)
    files = selected(asked.path, "data convert", column=asked.column, ids=True).files
    source = only(files).name
    target = asked.format or _DEFAULT.get(source, "tfrecord")
    if FORMATS[source].holds == "ids" and target not in ("tfrecord", "arrayrecord"):
        raise UserError(f"[data convert] --format: expected tfrecord or arrayrecord for ids, got {target}")
    if FORMATS[source].holds == "ids" and asked.split_valid:
        raise UserError(
            "[data convert] --split-valid: expected documents, got ids; use --split-valid when you "
            "convert the text to ids"
        )
    tokenizer = None
    if target == "megatron":
        if not asked.tokenizer or asked.tokenizer == "bpe":
            raise UserError(
                "[data convert] --tokenizer: expected bytes, a file, folder or hub name, got none"
            )
        tokenizer = find_tokenizer(asked.tokenizer, 0, Access()).make()
    how = Reading(source, target, asked.column, asked.length, asked.split_valid, tokenizer)
    made = Conversion(asked.target, how, asked.shards).run(files)
    print(f"{_read(files, source)}, SHA-256 {digest(files)}")
    for path, count in made.items():
        print(f"written  {path}  {count:,} records, {path.stat().st_size:,} bytes, SHA-256 {digest([path])}")
        if (index := path.with_suffix(".idx")).exists() and target == "megatron":
            print(f"         {index}  {index.stat().st_size:,} bytes, SHA-256 {digest([index])}")
    for what, count in how.dropped.items():
        print(f"dropped  {count:,} {what}")
    if others := other_columns(files[0], how):
        print(f"dropped  all columns but {asked.column!r}: {', '.join(map(str, others))}")
    return 0


def _to_one_file(asked: Asked) -> int:
    """Convert the sources into one file."""
    source = sources_of(asked.sources, asked.split, asked.keep, asked.document, "data convert")
    lines = write_one(source, asked.target, asked.as_lines)
    print(
        "\n".join([_read(source.files, source.format.name), *lines, *(f"note     {n}" for n in source.notes)])
    )
    return 0


def _read(files: Sequence[Path], source: str) -> str:
    """Return the line about the files that were read."""
    return f"read     {len(files):,} file{'s' * (len(files) != 1)} of {source}, {_size(files):,} bytes"


def digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the concatenated files."""
    h = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                h.update(data)
    return h.hexdigest()


def _size(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


@dataclass
class Conversion:
    """A conversion into a folder. shards: the number of files per split; 0: one for each input file."""

    folder: Path
    how: Reading
    shards: int

    def run(self, files: Sequence[Path]) -> dict[Path, int]:
        """Convert the files, and return the number of records by written file. An error leaves no output."""
        temporary = self.folder / f".convert-{os.getpid()}"
        new = not self.folder.exists()
        try:
            temporary.mkdir(parents=True)
            counts = self._write(files, temporary)
            for name in sorted(os.listdir(temporary)):
                if (there := self.folder / name).exists():
                    raise UserError(
                        f"[data convert] --to: {there} exists already; remove it or name another folder"
                    )
            for name in sorted(os.listdir(temporary)):
                (temporary / name).replace(self.folder / name)
            new = False
        except OSError as error:
            raise SaveError(f"[data convert] {self.folder}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if new:
                shutil.rmtree(self.folder, ignore_errors=True)
        return {self.folder / name: count for name, count in sorted(counts.items())}

    def _write(self, files: Sequence[Path], folder: Path) -> dict[str, int]:
        """Write files of the target format into the folder; return the number of records by name."""
        if self.how.target == "c4":
            return self._convert(files, folder, texts, LinesWriter)
        if self.how.target == "megatron":
            assert self.how.tokenizer is not None
            return self._convert(
                files, folder, token_ids, partial(IndexedWriter, vocab_size=self.how.tokenizer.vocab_size)
            )
        as_records = TfrecordWriter if self.how.target == "tfrecord" else ArrayRecordWriter
        return self._convert(files, folder, payloads, as_records)

    def _convert(
        self,
        files: Sequence[Path],
        folder: Path,
        items: Callable[[Path, Reading], Iterator[tuple[bool, ItemT]]],
        open_writer: Callable[[Path], Writer[ItemT]],
    ) -> dict[str, int]:
        writers: dict[str, Writer[ItemT]] = {}
        counts: dict[str, int] = {}
        numbers = {False: 0, True: 0}  # numbers of files in the splits
        totals = {False: 0, True: 0}  # numbers of records in the splits
        trains = sum(not _is_validation(path) for path in files)
        progress = ConsoleProgress()
        try:
            for done, path in enumerate(files):
                progress("converting", done, len(files))
                whole = _is_validation(path)
                for held, item in items(path, self.how):
                    valid = held or whole
                    at = totals[valid] % self.shards if self.shards else numbers[valid]
                    totals[valid] += 1
                    if self.how.target == "c4" and valid and totals[valid] > _C4_VALIDATION:
                        self.how.dropped[f"validation documents after the first {_C4_VALIDATION:,}"] += 1
                        continue
                    name = self._name(path, valid, at, self.shards or trains)
                    if name not in writers:
                        writers[name] = open_writer(folder / name)
                    writers[name].write(item)
                    counts[name] = counts.get(name, 0) + 1
                numbers[whole] += 1
                if self.how.valid and not whole:
                    numbers[True] += 1
                if not self.shards:
                    for name in [name for name in writers if not name.startswith("c4-valid")]:
                        writers.pop(name).close()
        finally:
            while writers:
                writers.popitem()[1].close()
        if not counts:
            raise UserError("[data convert] --from: expected records, got none")
        progress.close(f"{sum(counts.values()):,} records converted")
        return counts

    def _name(self, path: Path, valid: bool, at: int, of: int) -> str:
        """Return the name of an output file that the original programs expect."""
        target, split = self.how.target, "validation" if valid else "train"
        if target == "c4":
            return "c4-validation_24567exp.json" if valid else f"c4-train.{at:05d}-of-{of:05d}.json"
        if target == "megatron":
            return f"{split}_text_document_{at:05d}.bin"
        if FORMATS[self.how.source].holds == "ids":
            ending = "" if target == "tfrecord" else ".arrayrecord"
            return f"pile.tfrecord.{'valid' if valid else 'b'}{at}{ending}"
        if self.how.source == "tfrecord" and not self.shards and not self.how.valid:
            return f"{path.name.removesuffix('.tfrecord')}.{target}"
        return f"{split}_data_{at:05d}.{target}"


def _is_validation(path: Path) -> bool:
    """Return whether the path names validation data: validation/data-00000-of-00004.arrow, c4-validation.*.json."""
    return any("valid" in part for part in (path.name, path.parent.name))
