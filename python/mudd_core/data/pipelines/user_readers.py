"""Readers of users: data.pipeline=FILE.py:NAME, or a name that was passed to `mc.data.register`.

A reader accepts data.path and yields documents (str or bytes) or sequences (lists of at most T + 1 ids). Documents are
packed as in the pipeline `pack`. Sequences are read in order or, with data.shuffle=on, in a new random order in each
epoch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, Json
from mudd_core.config import Config
from mudd_core.config.data import DataConfig
from mudd_core.config.own_files import file_of, split_name
from mudd_core.config.pipelines import KEY, PIPELINES
from mudd_core.data.documents.source import DocumentSource, Frame, file_digest
from mudd_core.data.formats.text import fault_in
from mudd_core.data.pipelines import pack
from mudd_core.data.pipelines.core_rows import CoreRows, token_file
from mudd_core.data.pipelines.document_data import DocumentData, cached
from mudd_core.data.rows import Preparation, RowShape
from mudd_core.data.sources.corpus import Split
from mudd_core.data.tokenizers.source import TokenizerSource
from mudd_core.data.tokenizers.tokenizer import Tokenizer

Item: TypeAlias = "str | bytes | list[int] | Array"
Reader = Callable[[str], Iterable[Item]]
_registered: dict[str, Reader] = {}


def register(name: str, reader: Reader) -> None:
    """Let `data.pipeline=name` read with `reader(data.path)` in this process."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"[data] register: expected a name such as my_reader, got {name!r}")
    if name in PIPELINES:
        raise ValueError(
            f"[data] register: expected a new name, got {name!r}, which is a pipeline of mudd_core"
        )
    if not callable(reader):
        raise TypeError(
            f"[data] register: expected a function of data.path as reader, got {type(reader).__name__}"
        )
    _registered[name] = reader


def registered() -> list[str]:
    """Return the names that were registered in this process."""
    return list(_registered)


def find_reader(name: str) -> Reader | None:
    """Return the reader that data.pipeline names, or None. Raise UserError if its file does not define the function."""
    if name in _registered:
        return _registered[name]
    named = split_name(name)
    if named is None:
        return None
    file, function = named
    found = getattr(file_of(KEY, name).module, function, None)
    if not callable(found):
        raise UserError(f"[data.pipeline] {file}: expected a function {function!r}, got none")
    reader: Reader = found
    return reader


@dataclass(frozen=True)
class ReaderTexts:
    """The items of a reader, as the only part of a source.

    empty: this split has no items, because it is held out from the other one. utf8: bytes from the reader are UTF-8
    text.
    """

    split: Split
    reader: Reader
    path: str
    empty: bool = False
    files: tuple[Path, ...] = (Path(),)
    utf8: bool = True

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (0, the item as bytes: UTF-8 text or int64 ids).

        Raise UserError for another type, or if the types are mixed.
        """
        kinds = set()
        for number, item in enumerate(() if self.empty else self.reader(self.path)):
            kinds.add(isinstance(item, str | bytes))
            if len(kinds) > 1:
                raise UserError(
                    "[data.pipeline] reader: expected only strings or only lists of ids, got the "
                    f"other kind in item {number}"
                )
            yield 0, _as_bytes(item, number, self.utf8)

    def groups(self) -> list[ReaderTexts]:
        return [] if self.empty else [self]

    def whole_files(self) -> list[Path]:
        """Return the file that data.path names; an empty list if it names no file."""
        file = Path(self.path)
        return [] if self.empty or not file.is_file() else [file]

    def identity(self) -> list[Json]:
        """Return the reader's code and the digest of the file that it reads."""
        try:
            code = inspect.getsource(self.reader)
        except (OSError, TypeError):
            code = getattr(self.reader, "__qualname__", type(self.reader).__qualname__)
        file = Path(self.path)
        return [self.empty, code, self.path, file_digest(file) if file.is_file() else None]


def _as_bytes(item: Item, number: int, utf8: bool) -> bytes:
    if isinstance(item, bytes):
        if utf8 and (fault := fault_in(item)) is not None:
            raise UserError(
                f"[data.pipeline] reader: expected UTF-8 text, got other bytes in item {number} at byte {fault}; "
                "decode them in the reader and yield strings"
            )
        return item
    if isinstance(item, str):
        return item.encode()
    ids = np.asarray(item)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.size < 2:
        raise UserError(
            f"[data.pipeline] reader: expected a string or at least 2 ids as item {number}, got {item!r:.80}"
        )
    return ids.astype(np.int64).tobytes()


def gives_text(settings: DataConfig, reader: Reader) -> bool:
    """Return whether the first item of a reader is text; raise UserError if there is none."""
    for item in reader(settings.path):
        return isinstance(item, str | bytes)
    raise UserError(
        f"[data.pipeline] {settings.pipeline}: the reader returned nothing for data.path={settings.path!r}"
    )


def parts_of(settings: DataConfig, reader: Reader) -> tuple[str, ...]:
    """Return the names of the further arrays of a reader."""
    return pack.PARTS if gives_text(settings, reader) else ()


class ReaderIds(DocumentData):
    """Sequences of ids from a reader."""

    frame: ClassVar[Frame] = "ids"
    hold_out: ClassVar[bool] = True

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None

    def rows(self, split: Split, shape: RowShape) -> CoreRows:
        from mudd_core import _core

        count = self.require_documents(split, shape.batch_size if split == "train" else 1, "a batch")
        starts = self.cache.document_starts(split)
        ends = np.append(starts[1:], self.cache.place(split).count)
        shuffled = split == "train" and self.config.data.shuffle == "on"
        core = _core.table_rows(
            token_file(self.cache, split),
            _core.RowRule("next"),
            shape.seq_len,
            begins=np.arange(count + 1),
            firsts=starts.astype(np.int64),
            counts=(ends - starts).astype(np.int64),
            buffer=(self.config.data.buffer or count) if shuffled else 0,
            seed=shape.seed,
            wraps=split == "train",
        )
        return CoreRows(core, shape, self.cache, split, self.places)


def prepare(config: Config, how: Preparation, reader: Reader) -> DocumentData:
    """Return the items of a reader, tokenized unless they are ids."""
    settings = config.data
    text = gives_text(settings, reader)
    kind: type[DocumentData] = pack.PackData if text else ReaderIds
    source = DocumentSource(
        ReaderTexts("train", reader, settings.path, utf8=settings.tokenizer != "bytes"),
        ReaderTexts("valid", reader, settings.path, empty=True),
        kind.frame,
        hold_out=True,
    )
    if not text and config.model.vocab_size < 2:
        raise UserError(
            "[config] model.vocab_size: expected the vocabulary size, at least 2, for a reader of ids"
        )
    tokenizer = None if text else TokenizerSource("ids", vocab_size=config.model.vocab_size)
    return kind(config, cached(config, how, lambda: source, tokenizer))
