"""Data that are tokenized while the run trains, and the check whether data.cache and the files permit it."""

from __future__ import annotations

import functools
import os
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import notes_stream
from mudd_core.base.units import bytes_text
from mudd_core.config import Config
from mudd_core.config.pipelines import spec_of
from mudd_core.config.rules import stream_faults
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.documents.source import DocumentSource, TextFiles
from mudd_core.data.progress import ConsoleProgress
from mudd_core.data.rows import Cursor, Rows, RowShape
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.recipe import Kept, Recipe
from mudd_core.data.streaming.rows import BatchStream, StreamRows
from mudd_core.data.streaming.validation import validation_cache
from mudd_core.data.tokenizers.source import TokenizerSource
from mudd_core.data.tokenizers.tokenizer import Tokenizer

AUTO_BYTES = 2 << 30  # bytes of source files above which data.cache=auto streams


@dataclass(frozen=True)
class StreamData(ABC):
    """Documents of files; see rows.Prepared. root: the folder of caches. progress: None prints to the terminal."""

    config: Config
    source: DocumentSource
    tokenizer_source: TokenizerSource
    fingerprint: str
    root: Path
    progress: Progress | None
    cursors: OrderedDict[int, Cursor] = field(default_factory=OrderedDict)
    caches: dict[int, TokenCache] = field(default_factory=dict)  # caches of validation documents
    parts: ClassVar[tuple[str, ...]]
    seal: ClassVar[str | None] = None
    valid_bytes_per_target: ClassVar[float] = 0.0
    train_tokens: ClassVar[int] = 0  # unknown until the end of the data
    documents: ClassVar[tuple[int, int]] = (0, 0)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built at first use."""
        return self.tokenizer_source.make()

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @abstractmethod
    def opened(self, shape: RowShape, cursor: Cursor | None) -> BatchStream:
        """Return the batches of training, starting at a cursor."""

    @abstractmethod
    def valid_rows(self, cache: TokenCache, shape: RowShape) -> Rows:
        """Return the sequences of the validation documents."""

    def held_first(self, shape: RowShape) -> int:
        """Return the number of first documents that are for validation; 0 if files or hashes decide."""
        return 0

    def rows(self, split: Split, shape: RowShape) -> Rows:
        """Return the sequences of a split."""
        if split == "valid":
            return self.valid_rows(self.validation(self.held_first(shape)), shape)
        return StreamRows(
            self.config.data.pipeline,
            shape,
            self.parts,
            lambda cursor: self.opened(shape, cursor),
            self.cursors,
            self.told,
        )

    def validation(self, first: int) -> TokenCache:
        """Return the validation documents, or the first `first` ones; the cache is built at first use."""
        kept: Kept = "held" if self.source.hold_out and not first else "all"
        if first not in self.caches:
            self.caches[first] = validation_cache(
                self.root, self.source, self.tokenizer_source, self.processes(kept), first, self.told
            )
        return self.caches[first]

    @functools.cached_property
    def told(self) -> Progress:
        """The function that receives progress."""
        return self.progress or ConsoleProgress()

    @property
    def texts(self) -> TextFiles:
        """The training files."""
        assert isinstance(self.source.train, TextFiles)
        return self.source.train

    @property
    def kept(self) -> Kept:
        """The rule that selects the training documents."""
        return "train" if self.source.hold_out else "all"

    def processes(self, kept: Kept, longest: int = 0, tail: int = 0) -> Processes:
        """Create the processes: data.workers of them, but at most one per core."""
        self.tokenizer.encode("a")  # raises the error of an invalid tokenizer here, once
        count = min(max(1, self.config.data.workers), len(os.sched_getaffinity(0)))
        recipe = Recipe(self.texts, self.tokenizer_source, self.source.frame, kept, longest, tail)
        return Processes(count, recipe, self.told)

    def describe(self) -> list[str]:
        """Return lines about the source and the tokenizer; documents are not counted."""
        valid = len(self.source.valid.files)
        return [
            "cache       none: data.cache=stream tokenizes ahead of the training",
            f"pipeline    {self.config.data.pipeline}",
            f"tokenizer   {self.tokenizer_source.identity}, {self.vocab_size} ids",
            f"train       {len(self.texts.files):,} files, {bytes_text(self.source.bytes())} with validation files",
            f"valid       {f'{valid:,} files' if valid else 'held out from the training files'}",
        ]


def require_readable(source: DocumentSource) -> None:
    """Raise UserError or FormatError if the first document cannot be read, for example because a column is missing."""
    for texts in (source.train, source.valid):
        next(iter(texts.texts()), None)


def tell(source: DocumentSource, pipeline: str, progress: Progress | None) -> None:
    """Report that the data are streamed, and the reasons why streaming may be slow."""
    if progress is not None:
        return
    texts = source.train
    size = f"{len(texts.files):,} file{'s' * (len(texts.files) != 1)}, {bytes_text(source.bytes())}"
    print(f"data: {size}, tokenized ahead of the training (data.cache)", file=notes_stream())
    if spec_of(pipeline).by_number and isinstance(texts, TextFiles) and texts.reads_groups:
        print(
            f"warning: [data.cache] stream: each document of a shuffled order reads a row group of {texts.named}; "
            "ArrayRecord, TFRecord or plain jsonl files are faster (launch.py data convert)",
            file=sys.stderr,
        )
    if source.hold_out:
        print(
            "warning: [data.cache] stream: documents held out by their hash are found by reading all of the text "
            "first; name validation files in data.eval_path",
            file=sys.stderr,
        )


def is_streamed(config: Config, source: DocumentSource) -> bool:
    """Return whether to stream; raise UserError if data.cache=stream is set but the files do not permit it."""
    asked = config.data.cache
    if asked == "full":
        return False
    faults = [*stream_faults(config), *_file_faults(config, source, asked)]
    if asked == "stream":
        if faults:
            raise UserError("\n".join(f"[data.cache] {fault}" for fault in faults))
        return True
    return not faults and source.bytes() > AUTO_BYTES


def _file_faults(config: Config, source: DocumentSource, asked: str) -> list[str]:
    texts = source.train
    if not isinstance(texts, TextFiles):
        return ["stream: expected files of documents, got a reader function; set data.cache=full"]
    if not spec_of(config.data.pipeline).by_number:
        return []
    if texts.bad.drops:
        return [
            f"stream: data.pipeline={config.data.pipeline} reads documents by their index, which "
            "data.bad_records=drop changes; set data.cache=full"
        ]
    if fault := _order_fault(texts):
        return [
            f"stream: {fault}, and data.pipeline={config.data.pipeline} reads them in another order; unpack it, "
            "convert it (launch.py data convert), or set data.cache=full"
        ]
    if asked == "auto" and config.data.shuffle != "off" and texts.reads_groups:
        return ["stream: a shuffled order would read a whole row group for each document"]
    return []


def _order_fault(texts: TextFiles) -> str:
    """Return the reason why the documents of these files cannot be read by index; empty if they can."""
    if (way := texts.format.by_number) is None:
        return ""
    faults = (fault for file in texts.files if (fault := way.fault(file)))
    found = next(faults, "")
    return f"{found}, so its documents can only be read in order" if found else ""
