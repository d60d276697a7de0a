"""The settings that determine the ids of a stream's documents: files, tokenizer, frame, and the selecting rule."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from mudd_core.data.documents.origins import Place
from mudd_core.data.documents.places import places_of_file
from mudd_core.data.documents.source import Frame, TextFiles, framed
from mudd_core.data.formats.format import BadRecords
from mudd_core.data.messages import Head, Message
from mudd_core.data.sources.corpus import is_held_out
from mudd_core.data.tokenizers.source import TokenizerSource, stored_tokenizer
from mudd_core.data.tokenizers.tokenizer import Ids, Tokenizer
from mudd_core.data.tokenizers.trial import mark_as_tried

Int32 = npt.NDArray[np.int32]
# all: every document. train: documents that are not held out by their hash. held: the held-out documents.
Kept = Literal["all", "train", "held"]


@dataclass(frozen=True)
class Recipe:
    """The settings of a process. longest: maximum ids per document, 0 for unlimited; tail: see DocumentTable."""

    texts: TextFiles
    tokenizer: TokenizerSource
    frame: Frame
    kept: Kept = "all"
    longest: int = 0
    tail: int = 0

    def places(self, files: Ids, numbers: Ids, counts: Sequence[int]) -> list[Place]:
        """Return the places of documents, for which their files are read.

        numbers: their indices among the documents of their files that are kept. counts: the number of these for each
        file.
        """
        places = {
            file: places_of_file(
                replace(self.texts, files=(self.texts.files[file],)),
                counts[file],
                hold_out=self.kept == "train",
            )
            for file in set(files.tolist())
        }
        return [
            places[file][number] if places[file] else Place(self.texts.files[file])
            for file, number in zip(files.tolist(), numbers.tolist(), strict=True)
        ]

    def message(self) -> Message:
        """Return the message that starts a process with this recipe."""
        texts, tokenizer = self.texts, self.tokenizer
        head: Head = {
            "files": [str(file) for file in texts.files],
            "named": texts.named,
            "column": texts.column,
            "cuts": texts.cuts,
            "drops": texts.bad.drops,
            "identity": tokenizer.identity,
            "tokenizer_file": tokenizer.file,
            "frame": self.frame,
            "kept": self.kept,
            "longest": self.longest,
            "tail": self.tail,
        }
        return head, [np.frombuffer(tokenizer.data, np.uint8)]


@dataclass(frozen=True)
class Encoder:
    """The recipe inside a process, with its tokenizer built."""

    texts: TextFiles
    tokenizer: Tokenizer
    frame: Frame
    kept: Kept
    longest: int
    tail: int

    @classmethod
    def of_message(cls, message: Message) -> Encoder:
        """Build the encoder from Recipe.message."""
        head, (data,) = message
        files = tuple(Path(file) for file in head["files"])
        bad = BadRecords(head["drops"])
        texts = TextFiles("train", files, head["named"], head["column"], head["cuts"], bad)
        mark_as_tried(data.tobytes())
        made = stored_tokenizer(head["identity"], data.tobytes(), head["tokenizer_file"])
        return cls(texts, made, head["frame"], head["kept"], head["longest"], head["tail"])

    def documents(self, file: int) -> Iterator[bytes]:
        """Yield all documents of one file."""
        return (text for _, text in replace(self.texts, files=(self.texts.files[file],)).texts())

    def keeps(self, text: bytes) -> bool:
        """Return whether a document is part of the stream."""
        if self.kept == "all":
            return True
        return is_held_out(hashlib.sha256(text).digest()) == (self.kept == "held")

    def ids(self, texts: Sequence[bytes]) -> list[Int32]:
        """Return the truncated ids of documents; raise UserError for an id outside the vocabulary."""
        rows = framed(self.tokenizer, self.frame, texts) if texts else []
        return [self._cut(row).astype(np.int32) for row in rows]

    def _cut(self, row: Ids) -> Ids:
        if self.longest == 0 or row.size <= self.longest:
            return row
        if self.tail == 0:
            return row[: self.longest]
        return np.concatenate([row[: self.longest - self.tail], row[-self.tail :]])
