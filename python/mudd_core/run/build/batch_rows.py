"""The sequences of a batch for people: the text, the source of a mixture and the documents of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Array, Int64
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_names

if TYPE_CHECKING:
    from mudd_core.data.batcher import Batcher
    from mudd_core.data.pipelines import Rows
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class RowDocument:
    """A document, or the part of it, in a sequence.

    start, end: its targets in the sequence, so that token_losses()[row, start:end] are its losses. targets: how many of
    them have a loss. number: its position among the training documents of its source, from 0; None if the data do not
    have it. text: None for ids without a tokenizer.
    """

    start: int
    end: int
    targets: int
    text: str | None
    number: int | None = None


@dataclass(frozen=True)
class BatchRow:
    """A sequence of a batch. sample: its index in the order of training. source: of a mixture (data.mix), else None.

    targets: how many of its targets have a loss. text: of its inputs; None for ids without a tokenizer.
    """

    row: int
    sample: int
    targets: int
    text: str | None
    documents: tuple[RowDocument, ...]
    source: str | None = None

    def __str__(self) -> str:
        return self.text if self.text is not None else f"row {self.row}: ids without a tokenizer"


def batch_rows(
    config: Config, rows: Rows | None, tokenizer: Tokenizer | None, arrays: Mapping[str, Array], first: int
) -> list[BatchRow]:
    """Return the sequences of a batch that starts at this sample index."""
    from mudd_core.data.pipelines.mixture.rows import sources_of

    size = len(arrays["inputs"])
    sources, names = sources_of(rows, first, size), source_names(config)
    found = []
    for row in range(size):
        one = {name: array[row] for name, array in arrays.items()}
        length = _length(one)
        sample = row if config.data.repeat_batch else first + row
        documents = tuple(_documents(one, length, tokenizer, _window(rows, sample)))
        source = None if sources is None else names[sources[row]]
        text = _text(one["inputs"][:length], tokenizer)
        found.append(BatchRow(row, first + row, _counted(one["targets"]), text, documents, source))
    return found


def document_files(config: Config, rows: Rows | None, found: Sequence[BatchRow]) -> dict[int, Path]:
    """Return the files of the documents of sequences by their numbers; empty unless data.path is plain text."""
    from mudd_core.data.batcher import Batcher
    from mudd_core.data.documents.plain_text import files_of
    from mudd_core.data.pipelines.text import reads_records

    if not isinstance(rows, Batcher) or reads_records(config.data, resumed=True):
        return {}
    numbers = {one.number for row in found for one in row.documents}
    return files_of(config.data, rows.cache, [number for number in numbers if number is not None])


def _length(row: Mapping[str, Array]) -> int:
    """Return the number of inputs before the padding of a sequence."""
    if "segments" not in row or not row["segments"].any():
        return len(row["inputs"])
    return int(np.flatnonzero(row["segments"])[-1]) + 1


def _window(rows: Rows | None, sample: int) -> tuple[Batcher, int] | None:
    """Return (batcher of the token cache, index in it) of a sample; None if the sample is from other data."""
    from mudd_core.data.batcher import Batcher
    from mudd_core.data.pipelines.ids_data import FirstBatch
    from mudd_core.data.pipelines.mixture.rows import MixedRows
    from mudd_core.data.pipelines.taught import TaughtRows

    if isinstance(rows, MixedRows):
        sources, indices = rows.schedule.places(sample, 1)
        return _window(rows.of[int(sources[0])], int(indices[0]))
    if isinstance(rows, FirstBatch | TaughtRows):
        return _window(rows.of, sample)
    return (rows, sample) if isinstance(rows, Batcher) else None


def _documents(
    row: Mapping[str, Array], length: int, tokenizer: Tokenizer | None, window: tuple[Batcher, int] | None
) -> Iterator[RowDocument]:
    """Yield the documents of a sequence, by its segments, or else by the end-of-document ids."""
    inputs, packed = row["inputs"], "segments" in row and bool(row["segments"].any())
    if packed:
        starts = np.flatnonzero(np.diff(row["segments"][:length], prepend=0))
    elif tokenizer is not None:
        starts = np.flatnonzero(np.concatenate([[True], inputs[: length - 1] == tokenizer.eos_id]))
    else:
        starts = np.zeros(1, np.int64)
    numbers = _numbers(starts, window)
    # Without segments the last id of a document predicts the first id of the next one.
    shift = 0 if packed else 1
    for number, start, end in zip(numbers, starts.tolist(), [*starts.tolist()[1:], length], strict=True):
        first, last = max(0, start - shift), end if end == length else end - shift
        counted = _counted(row["targets"][first:last])
        yield RowDocument(first, last, counted, _text(inputs[start:end], tokenizer), number)


def _numbers(starts: Int64, window: tuple[Batcher, int] | None) -> list[int | None]:
    if window is None:
        return [None] * len(starts)
    rows, sample = window
    return list(rows.documents(sample, starts).tolist())


def _counted(targets: Array) -> int:
    return int((targets >= 0).sum())


def _text(ids: Array, tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.decode(ids.tolist())
