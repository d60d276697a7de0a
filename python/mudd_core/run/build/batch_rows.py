"""The sequences of a batch for people: the text, the source of a mixture and the documents of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_names
from mudd_core.run.build.components import Components

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Rows
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class RowDocument:
    """A document, or the part of it, in a sequence.

    start, end: the positions of its inputs in the sequence. number: its position among the training documents of its
    source, from 0; None if the data do not keep it. text: None for ids without a tokenizer.
    """

    start: int
    end: int
    text: str | None
    number: int | None = None


@dataclass(frozen=True)
class BatchRow:
    """A sequence of a batch. sample: its index in the order of training. source: of a mixture (data.mix), else None.

    text: of its inputs; None for ids without a tokenizer.
    """

    row: int
    sample: int
    text: str | None
    documents: tuple[RowDocument, ...]
    source: str | None = None

    def __str__(self) -> str:
        return self.text if self.text is not None else f"row {self.row}: ids without a tokenizer"


def batch_rows(
    config: Config, rows: Rows | None, components: Components, arrays: Mapping[str, Array], first: int
) -> list[BatchRow]:
    """Return the sequences of a batch that starts at this sample index."""
    from mudd_core.data.pipelines.mixture.rows import sources_of

    size = len(arrays["inputs"])
    sources, names = sources_of(rows, first, size), source_names(config)
    found = []
    for row in range(size):
        one = {name: array[row] for name, array in arrays.items()}
        length = _length(one)
        text = _text(one["inputs"][:length], components.tokenizer)
        documents = tuple(_documents(one, length, components.tokenizer))
        source = None if sources is None else names[sources[row]]
        found.append(BatchRow(row, first + row, text, documents, source))
    return found


def _length(row: Mapping[str, Array]) -> int:
    """Return the number of inputs before the padding of a sequence."""
    if "segments" not in row or not row["segments"].any():
        return len(row["inputs"])
    return int(np.flatnonzero(row["segments"])[-1]) + 1


def _documents(row: Mapping[str, Array], length: int, tokenizer: Tokenizer | None) -> Iterator[RowDocument]:
    """Yield the documents of a sequence, by its segments, or else by the end-of-document ids."""
    inputs = row["inputs"]
    if "segments" in row and row["segments"].any():
        starts = np.flatnonzero(np.diff(row["segments"][:length], prepend=0))
    elif tokenizer is not None:
        starts = np.flatnonzero(np.concatenate([[True], inputs[: length - 1] == tokenizer.eos_id]))
    else:
        starts = np.zeros(1, np.int64)
    for start, end in zip(starts.tolist(), [*starts.tolist()[1:], length], strict=True):
        yield RowDocument(start, end, _text(inputs[start:end], tokenizer))


def _text(ids: Array, tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.decode(ids.tolist())
