"""The sequences of a batch for people: the text, the source of a mixture and the documents of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_names
from mudd_core.data.documents.origins import Origin, Place, origins_of

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Rows
    from mudd_core.data.tokenizers.tokenizer import Tokenizer

_ANSWERS = ("chosen", "rejected")


@dataclass(frozen=True)
class RowDocument:
    """A document, or the part of it, in a sequence.

    start, end: its targets in the sequence, so that token_losses()[row, start:end] are its losses. targets: how many of
    them have a loss. text: None for ids without a tokenizer. number: its position among the training documents of its
    source, from 0. file, record: its file, and its position among the records of the file, from 1. byte: the
    index of its first byte in a plain text file that is cut into documents. first_id: the index of its first id in a
    file of plain ids. None: unknown, or the file has none.
    """

    start: int
    end: int
    targets: int
    text: str | None
    number: int | None = None
    file: str | None = None
    record: int | None = None
    byte: int | None = None
    first_id: int | None = None


@dataclass(frozen=True)
class BatchRow:
    """A sequence of a batch. sample: its index in the order of training. source: of a mixture (data.mix), else None.

    targets: how many of its targets have a loss. text: of its inputs; None for ids without a tokenizer. answer: chosen
    or rejected, for pairs of answers.
    """

    row: int
    sample: int
    targets: int
    text: str | None
    documents: tuple[RowDocument, ...]
    source: str | None = None
    answer: str | None = None

    def __str__(self) -> str:
        return self.text if self.text is not None else f"row {self.row}: ids without a tokenizer"


def batch_rows(
    config: Config,
    rows: Rows | None,
    tokenizer: Tokenizer | None,
    arrays: Mapping[str, Array],
    first: int,
    *,
    files: bool = False,
) -> list[BatchRow]:
    """Return the sequences of a batch that starts at this sample index. files: find the files of the documents."""
    from mudd_core.data.pipelines.mixture.rows import sources_of

    size = len(arrays["inputs"])
    sources, names = sources_of(rows, first, size), source_names(config)
    samples = range(size) if config.data.repeat_batch else range(first, first + size)
    every = origins_of(rows, samples, files=files)
    found = []
    for row in range(size):
        one = {name: array[row] for name, array in arrays.items()}
        length = _length(one)
        documents = tuple(_documents(one, length, tokenizer, every[row]))
        source = None if sources is None else names[sources[row]]
        answer = _ANSWERS[row % 2] if config.loss.of_pairs else None
        text = _text(one["inputs"][:length], tokenizer)
        found.append(BatchRow(row, first + row, _counted(one["targets"]), text, documents, source, answer))
    return found


def _length(row: Mapping[str, Array]) -> int:
    """Return the number of inputs before the padding of a sequence."""
    if "segments" not in row or not row["segments"].any():
        return len(row["inputs"])
    return int(np.flatnonzero(row["segments"])[-1]) + 1


def _documents(
    row: Mapping[str, Array], length: int, tokenizer: Tokenizer | None, origins: Sequence[Origin]
) -> Iterator[RowDocument]:
    """Yield the documents of a sequence: its origins, else its segments, else the parts that an EOS ends."""
    inputs, packed = row["inputs"], "segments" in row and bool(row["segments"].any())
    known = [one for one in origins if one.start < length]
    if known:
        starts = [one.start for one in known]
    elif packed:
        starts = np.flatnonzero(np.diff(row["segments"][:length], prepend=0)).tolist()
    elif tokenizer is not None:
        starts = np.flatnonzero(np.append(True, inputs[: length - 1] == tokenizer.eos_id)).tolist()
    else:
        starts = [0]
    # Without segments the last id of a document predicts the first id of the next one.
    shift = 0 if packed else 1
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], length], strict=True)):
        first, last = max(0, start - shift), end if end == length else end - shift
        origin = known[number] if known else Origin()
        place = origin.place or Place(Path())
        yield RowDocument(
            first,
            last,
            _counted(row["targets"][first:last]),
            _text(inputs[start:end], tokenizer),
            origin.number,
            None if origin.place is None else str(place.file),
            place.record,
            place.byte,
            place.first_id,
        )


def _counted(targets: Array) -> int:
    return int((targets >= 0).sum())


def _text(ids: Array, tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.decode(ids.tolist())
