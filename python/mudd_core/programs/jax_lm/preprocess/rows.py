"""From the ids of a document to rows: overlapping windows with BOS, EOS and padding, inputs, mask and labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError

Ids = npt.NDArray[np.int64]
PAD = 0  # whatever id the tokenizer pads with: what the original program writes


@dataclass(frozen=True)
class Shape:
    """How windows are cut. length: of a row; shortest: of a window, with the reserved tokens; stride: between starts.

    by_position: padding is where a window has ended. Otherwise it is where the id is 0, which is a token of its own in
    some vocabularies; this is what the original program does.
    """

    length: int = 256
    shortest: int = 128
    reserved: int = 2
    stride: int = 128
    ignore_label: int = -100
    by_position: bool = False

    def __post_init__(self) -> None:
        if self.length < 1:
            raise UserError(f"[preprocess] --max-sequence-length: expected at least 1, got {self.length}")
        if self.stride < 1:
            raise UserError(f"[preprocess] --stride: expected at least 1, got {self.stride}")
        if not 0 <= self.reserved <= self.length:
            raise UserError(
                f"[preprocess] --num-special-token-reserved: expected 0 to {self.length} "
                f"(--max-sequence-length), got {self.reserved}"
            )
        if not self.shortest - self.reserved < self.longest_window:
            raise UserError(
                f"[preprocess] --min-sequence-length: expected at most {self.length} (--max-sequence-length), "
                f"got {self.shortest}; longer windows than that do not exist"
            )

    @property
    def longest_window(self) -> int:
        """Tokens of a full window: one more than a row has, since the last one is a label only."""
        return self.length - self.reserved + 1


@dataclass(frozen=True)
class Rows:
    """Rows [n, length] of some documents, in their order."""

    input_ids: Ids
    attention_mask: npt.NDArray[np.float32]
    labels: Ids

    def __len__(self) -> int:
        return len(self.input_ids)

    def part(self, first: int, last: int) -> Rows:
        """The rows [first, last)."""
        place = slice(first, last)
        return Rows(self.input_ids[place], self.attention_mask[place], self.labels[place])

    @staticmethod
    def joined(parts: list[Rows], length: int) -> Rows:
        """The rows of several parts behind each other."""
        empty = np.zeros((0, length), np.int64)
        return Rows(
            np.concatenate([empty, *(part.input_ids for part in parts)]),
            np.concatenate([empty.astype(np.float32), *(part.attention_mask for part in parts)]),
            np.concatenate([empty, *(part.labels for part in parts)]),
        )


def rows_of(ids: npt.ArrayLike, bos: int, eos: int, shape: Shape) -> Rows:
    """The rows of one document, one for each window of more than shortest - reserved tokens."""
    tokens = np.asarray(ids, np.int64)
    starts = np.arange(0, len(tokens), shape.stride)
    sizes = np.minimum(shape.longest_window, len(tokens) - starts)
    kept = sizes > shape.shortest - shape.reserved
    starts, sizes = starts[kept], sizes[kept]
    width = max(shape.longest_window + 2, shape.length + 1)
    ends = (sizes + 1)[:, None]  # where EOS is
    place = np.arange(width)[None, :]
    index = np.clip(starts[:, None] + place - 1, 0, max(len(tokens) - 1, 0))
    full = np.where(place < ends, tokens[index] if len(tokens) else PAD, PAD)
    full[:, 0] = bos
    full[place == ends] = eos
    inputs, labels = full[:, : shape.length], full[:, 1 : shape.length + 1]
    padding = place > ends if shape.by_position else full == PAD
    return Rows(
        np.ascontiguousarray(inputs),
        (~padding[:, : shape.length]).astype(np.float32),
        np.where(padding[:, 1 : shape.length + 1], shape.ignore_label, labels),
    )
