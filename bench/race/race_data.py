"""Read the data folder of the race: token ids, random training batches, and the sequences of the validation.

The folder has train.bin and val.bin (little-endian uint16 ids, the format of nanoGPT) and data.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FIELDS = ("vocab_size", "seq_len", "batch_size", "val_bytes", "val_targets")


@dataclass(frozen=True)
class RaceData:
    """The ids of a data folder and the fields of its data.json. val_bytes: size of the text of the targets."""

    train: NDArray[np.uint16]
    val: NDArray[np.uint16]
    vocab_size: int
    seq_len: int
    batch_size: int
    val_bytes: int
    val_targets: int

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


def _pairs(sequences: NDArray[np.uint16]) -> tuple[Tensor, Tensor]:
    """Split sequences [B, T + 1] into inputs and targets [B, T]."""
    ids = torch.from_numpy(sequences.astype(np.int64))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def read_data(folder: Path) -> RaceData:
    """Read a data folder. Raise SystemExit with one line if a file or a field is missing or wrong."""
    fields = _fields(folder / "data.json")
    length = fields["seq_len"]
    ids = {name: _ids(folder / f"{name}.bin", length, fields["vocab_size"]) for name in ("train", "val")}
    targets = (len(ids["val"]) - 1) // length * length
    if targets != fields["val_targets"]:
        raise refusal(
            f"{folder / 'data.json'}: val_targets: expected {targets}, which are the targets of all whole"
            f" sequences of {length} in val.bin, got {fields['val_targets']}"
        )
    return RaceData(train=ids["train"], val=ids["val"], **fields)


def refusal(text: str) -> SystemExit:
    """Return the exception that ends the program with one line about --data."""
    return SystemExit(f"[race] --data: {text}")


def _fields(path: Path) -> dict[str, int]:
    """Return the fields of data.json, all of which are positive integers."""
    if not path.is_file():
        raise refusal(f"expected a folder with train.bin, val.bin and data.json, got no file {path}")
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise refusal(f"{path}: expected a JSON object, got an error: {error}") from None
    if not isinstance(found, dict):
        raise refusal(f"{path}: expected a JSON object with the fields {', '.join(FIELDS)}")
    for name in FIELDS:
        if type(found.get(name)) is not int or found[name] < 1:
            raise refusal(f"{path}: {name}: expected a positive integer, got {found.get(name)!r}")
    return {name: found[name] for name in FIELDS}


def _ids(path: Path, length: int, vocab_size: int) -> NDArray[np.uint16]:
    """Map a file of ids into memory and check its size and its largest id."""
    size = path.stat().st_size if path.is_file() else -1
    if size < 2 * (length + 1) or size % 2:
        found = f"{size} bytes" if size >= 0 else "no such file"
        raise refusal(f"{path}: expected at least {length + 1} ids of two bytes each, got {found}")
    ids = np.memmap(path, dtype="<u2", mode="r")
    largest = int(ids.max())
    if largest >= vocab_size:
        raise refusal(f"{path}: expected ids below vocab_size {vocab_size}, got {largest}")
    return ids
