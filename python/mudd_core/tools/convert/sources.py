"""Records of the sources of `data convert`, in the order in which a training on the same path reads them."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config.data import DocumentRule
from mudd_core.data.chat.filled_nulls import FilledNulls
from mudd_core.data.formats import Format, arrow, documents, only, parquet, rows, tokens
from mudd_core.data.formats.bounded import BoundedFile, CappedFile, opened
from mudd_core.data.formats.format import Record, require_columns, text_of
from mudd_core.data.sources.boundaries import cut_text
from mudd_core.data.sources.selection import folders_in, selected, shown
from mudd_core.data.sources.splits import splits_of
from mudd_core.tools.convert.columns import Row

IDS = "input_ids"
_IDS_A_ROW = 1 << 16  # of a file of plain ids, whose rows are joined again
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """The files of one split and their format.

    keep: the keys of records that are converted; empty for all. rule: of data.document. skips: leave out files that are
    no text, as a training on a folder does. notes: lines about files that are left out.
    """

    files: tuple[Path, ...]
    format: Format
    keep: tuple[str, ...] = ()
    rule: DocumentRule = "auto"
    skips: bool = False
    notes: list[str] = field(default_factory=list)
    _nulls: dict[Path, FilledNulls] = field(default_factory=dict)

    @property
    def has_types(self) -> bool:
        """Return whether the format decides the columns, so that no record must be read to find them."""
        return self.format.holds != "records"

    def records(self) -> Iterator[Row]:
        """Yield the records of all files. Raise UserError or FormatError for one that a training could not read."""
        if self.format.holds == "text":
            yield from ({"text": text} for text in self._texts())
            return
        read = self._ids if self.format.holds == "ids" else self._rows
        for file in self.files:
            yield from read(file)

    def _tell_dropped(self, file: Path, kept: Sequence[str]) -> None:
        """Note the columns of a table that JSON cannot represent; the readers leave them out."""
        if self.format.name not in _OPEN:
            return
        with CappedFile(file) as stream:
            _, names = _OPEN[self.format.name](file, stream)
        note = f"columns without a JSON type are left out: {', '.join(name for name in names if name not in kept)}"
        if set(names) > set(kept) and not self.keep and note not in self.notes:
            self.notes.append(note)

    @cached_property
    def _text_files(self) -> tuple[Path, ...]:
        """The files that are text. A training on a folder leaves the others out."""
        if not self.skips:
            return self.files
        found = tuple(filter(_is_text, self.files))
        if left := sorted(set(self.files).difference(found)):
            self.notes.append(f"files that are not text are left out: {shown(left)}")
        return found

    def _texts(self) -> Iterator[str]:
        rule = self.rule
        if rule == "auto":
            rule = "piece" if len(self._text_files) == 1 else "file"
        for file in self._text_files:
            if rule == "file":
                yield from documents(file, named="text")
            else:
                opened(file).close()  # raises UserError if the file cannot be read
                yield from (text.decode() for _, text in cut_text(file, rule))

    def _ids(self, file: Path) -> Iterator[Row]:
        if self.format is not tokens.FORMAT:
            yield from ({IDS: ids} for ids in rows(file, IDS, self.format.name))
            return
        with BoundedFile(file) as stream:
            place = tokens.place_of(stream)
            for at in range(0, place.count, _IDS_A_ROW):
                yield {IDS: place.read(stream, at, min(_IDS_A_ROW, place.count - at))}

    def _rows(self, file: Path) -> Iterator[Row]:
        one, wanted = self.format, self.keep or None
        if one.objects is None:
            for number, record in enumerate(one.records(file, wanted)):
                yield _plain(record, file, number)
            return
        if file not in self._nulls:
            self._nulls[file] = FilledNulls(file, one)
        first = True
        for members in one.objects(file):
            if first:
                require_columns(file, wanted, list(members))
                self._tell_dropped(file, [*members])
                first = False
            row = self._nulls[file].removed(members)
            yield {name: row[name] for name in (wanted or row) if name in row}


# Functions that return the reader of a table and the names of its columns.
_OPEN = {parquet.FORMAT.name: parquet.open_file, arrow.FORMAT.name: arrow.open_file}


def sources_of(
    paths: Sequence[str], split: str, keep: tuple[str, ...], rule: DocumentRule, place: str
) -> Source:
    """Return the files of these paths; raise UserError if there are none, or if they have several formats.

    split: of a folder whose files are named after splits; all for every file. place: the prefix of messages.
    """
    path = ",".join(paths)
    found = selected(path, place, column="", ids=True)
    files, notes = found.files, list(found.notes)
    for root in folders_in(path) if split != "all" else []:
        inside = [file for file in files if file.is_relative_to(root)]
        splits = splits_of(root, inside) if found.records else {}
        if split in splits:
            left = set(inside).difference(splits[split])
            files = tuple(file for file in files if file not in left)
            if left:
                notes.append(
                    f"files of other splits are left out: {shown(sorted(left), [root])}; --split=all converts them too"
                )
        elif split != "train" or any(name.startswith("train") for name in splits):
            known = ", ".join(sorted(splits)) or "its files are not named after splits"
            raise UserError(f"[{place}] --split: expected a split of {root} ({known}), or all, got {split!r}")
    one = only(files)
    if rule != "auto" and one.holds != "text":
        raise UserError(
            f"[{place}] --document: expected auto for files of {one.name}, whose records are the documents, got {rule}"
        )
    if keep and one.holds != "records":
        raise UserError(f"[{place}] --keep: expected files with records, got {one.name}; leave --keep out")
    skips = len(paths) == 1 and Path(path).expanduser().is_dir()
    return Source(files, one, keep, rule, skips, notes)


def _is_text(file: Path) -> bool:
    """Return whether a file is UTF-8 without NUL characters; it is read in blocks."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(file) as stream:
        try:
            while block := stream.read(_BLOCK):
                if b"\0" in block:
                    return False
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _plain(record: Record, file: Path, number: int) -> Row:
    """Return a record with strings in place of bytes."""
    return {
        name: text_of(value, file, number, name) if isinstance(value, bytes) else value
        for name, value in record.items()
    }
