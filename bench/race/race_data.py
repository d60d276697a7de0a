"""Read the data folder of the race: token ids, random training batches, and the sequences of the validation.

The folder has train.bin and val.bin, the format of nanoGPT, and data.json. The ids are little-endian uint16, or uint32
if the vocabulary has more than 65,536 tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

COUNTS = ("vocab_size", "seq_len", "batch_size", "val_targets")
Ids = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class RaceData:
    """The ids of a data folder and the fields of its data.json.

    val_bytes: size of the text of the targets, from the mean bytes of a token; 0 if it is not known.
    """

    train: Ids
    val: Ids
    vocab_size: int
    seq_len: int
    batch_size: int
    val_targets: int
    val_bytes: float

    def batch(self, seed: int, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets [size, seq_len] of a step; each sequence starts at a random place."""
        rng = np.random.default_rng([seed, step])
        starts = rng.integers(0, len(self.train) - self.seq_len, size)
        return _pairs(self.train[starts[:, None] + np.arange(self.seq_len + 1)])

    def validation(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and targets of all whole sequences of val.bin in order, at most `size` sequences each."""
        count = self.val_targets // self.seq_len
        for first in range(0, count, size):
            starts = self.seq_len * np.arange(first, min(first + size, count))
            yield _pairs(self.val[starts[:, None] + np.arange(self.seq_len + 1)])


def _pairs(sequences: Ids) -> tuple[Tensor, Tensor]:
    """Split sequences [B, T + 1] into inputs and targets [B, T]."""
    ids = torch.from_numpy(sequences.astype(np.int64))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def read_data(folder: Path) -> RaceData:
    """Read a data folder. Raise SystemExit with one line if a file or a field is missing or wrong."""
    fields, val_bytes = _fields(folder / "data.json")
    length = fields["seq_len"]
    ids = {name: _ids(folder / f"{name}.bin", length, fields["vocab_size"]) for name in ("train", "val")}
    targets = (len(ids["val"]) - 1) // length * length
    if targets != fields["val_targets"]:
        raise refusal(
            f"{folder / 'data.json'}: val_targets: expected {targets}, which are the targets of all whole"
            f" sequences of {length} in val.bin, got {fields['val_targets']}"
        )
    return RaceData(train=ids["train"], val=ids["val"], val_bytes=val_bytes, **fields)


def refusal(text: str) -> SystemExit:
    """Return the exception that ends the program with one line about --data."""
    return SystemExit(f"[race] --data: {text}")


def _fields(path: Path) -> tuple[dict[str, int], float]:
    """Return the counts of data.json, and val_bytes."""
    if not path.is_file():
        raise refusal(f"expected a folder with train.bin, val.bin and data.json, got no file {path}")
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise refusal(f"{path}: expected a JSON object, got an error: {error}") from None
    if not isinstance(found, dict):
        raise refusal(f"{path}: expected a JSON object with the fields {', '.join(COUNTS)}, val_bytes")
    for name in COUNTS:
        if type(found.get(name)) is not int or found[name] < 1:
            raise refusal(f"{path}: {name}: expected a positive integer, got {found.get(name)!r}")
    size = found.get("val_bytes")
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < math.inf:
        raise refusal(f"{path}: val_bytes: expected a number of bytes, or 0 if it is not known, got {size!r}")
    return {name: found[name] for name in COUNTS}, float(size)


def _ids(path: Path, length: int, vocab_size: int) -> Ids:
    """Map a file of ids into memory and check its size and its largest id."""
    width = 2 if vocab_size <= 1 << 16 else 4
    size = path.stat().st_size if path.is_file() else -1
    if size < width * (length + 1) or size % width:
        found = f"{size} bytes" if size >= 0 else "no such file"
        raise refusal(f"{path}: expected at least {length + 1} ids of {width} bytes each, got {found}")
    ids: Ids = np.memmap(path, dtype=f"<u{width}", mode="r")
    largest = int(ids.max())
    if largest >= vocab_size:
        raise refusal(f"{path}: expected ids below vocab_size {vocab_size}, got {largest}")
    return ids
