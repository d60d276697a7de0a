"""A teacher's probabilities in an HDF5 file: for each target with a loss, the k likeliest tokens.

The datasets `ids` (int32, ascending for each target) and `log_probs` (float32) have k values for each target. The
targets of a block are consecutive: an example of the pipeline chat, or a window of the pipeline text. `blocks` has five
numbers for each block: two that name it, its first target, its number of targets, and the CRC-32C of its bytes. The
attributes are the strings and numbers of Facts, and a SHA-256 over the attributes and `blocks`.

HDF5 and not Parquet: a step reads a few blocks by position, and pyarrow is not always installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mudd_core.base.errors import FormatError, UserError, write_error
from mudd_core.base.types import Float32, Int32

FORMAT = "mudd_core teacher 1"
_WORDS, _NUMBERS = ("pipeline", "base", "tokenizer", "data"), ("kept", "seq_len", "vocab_size")  # of Facts
_FIELDS = 5  # numbers of a block

Key = tuple[int, int]  # the name of a block: two numbers below 2^64


@dataclass(frozen=True)
class Facts:
    """The origin of a teacher file.

    pipeline: text or chat. base: SHA-256 of the teacher's weights. tokenizer, data: identify the tokenizer and the ids.
    kept: tokens for each target. seq_len: length of the teacher's sequences. vocab_size: of the tokenizer.
    """

    pipeline: str
    base: str
    tokenizer: str
    data: str
    kept: int
    seq_len: int
    vocab_size: int


class Block(NamedTuple):
    """The rows of a block: ids and log-probabilities [n, k]."""

    key: Key
    ids: Int32
    log_probs: Float32


def write_teacher(file: Path, facts: Facts, targets: int, blocks: Iterable[Block]) -> None:
    """Write the file, which appears complete or not at all. targets: the number of rows of all blocks.

    Raise SaveError if writing fails.
    """
    from mudd_core import _core, _h5

    fresh = file.with_name(f".{file.name}.part")
    fresh.unlink(missing_ok=True)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        table: list[tuple[int, ...]] = []
        first = 0
        with _h5.File.create(str(fresh)) as h5:
            for name, dtype in (("ids", np.int32), ("log_probs", np.float32)):
                h5.create_dataset(name, np.dtype(dtype), targets * facts.kept)
            for key, ids, log_probs in blocks:
                h5.write("ids", ids.reshape(-1), first * facts.kept)
                h5.write("log_probs", log_probs.reshape(-1), first * facts.kept)
                crc = _core.crc32c(ids.tobytes() + log_probs.tobytes())
                table.append((*key, first, len(ids), crc))
                first += len(ids)
            assert first == targets, (first, targets)
            numbers = np.array(table, np.uint64).reshape(-1)
            h5.create_dataset("blocks", numbers.dtype, numbers.size)
            h5.write("blocks", numbers)
            for name, value in {**asdict(facts), "targets": targets, "format": FORMAT}.items():
                if isinstance(value, int):
                    h5.set_number(name, value)
                else:
                    h5.set_text(name, value)
            h5.set_text("seal", _seal(facts, targets, numbers.tobytes()))
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        fresh.replace(file)
    except OSError as error:
        raise write_error(file, error) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _seal(facts: Facts, targets: int, blocks: bytes) -> str:
    text = json.dumps([FORMAT, asdict(facts), targets, hashlib.sha256(blocks).hexdigest()])
    return hashlib.sha256(text.encode()).hexdigest()


class TeacherFile:
    """An opened teacher file. Raise UserError if it is none, FormatError if it is damaged or cut short."""

    def __init__(self, path: Path, place: str) -> None:
        from mudd_core import _h5

        self.path = path
        if not path.is_file():
            raise UserError(
                f"{place}: expected a file of the command teach, got {path}, which does not exist"
            )
        self._h5 = _h5.File.open(str(path))
        if not self._h5.has("blocks") or self._h5.text("format") != FORMAT:
            raise UserError(
                f"{place}: expected a file of the command teach, got {path}, which is another file"
            )
        words, numbers_of = (partial(map, read) for read in (self._h5.text, self._h5.number))
        self.facts = Facts(*words(_WORDS), *numbers_of(_NUMBERS))
        self.targets = int(self._h5.number("targets"))
        numbers = self._h5.read("blocks")
        self.seal = _seal(self.facts, self.targets, numbers.tobytes())
        sizes = {name: self._h5.place(name)[1:] for name in ("ids", "log_probs")}
        whole = self.targets * self.facts.kept
        if (
            self._h5.text("seal") != self.seal
            or numbers.size % _FIELDS
            or sizes != {"ids": (whole, "int32"), "log_probs": (whole, "float32")}
        ):
            raise self._damage("its blocks or attributes have changed since it was written")
        table = numbers.reshape(-1, _FIELDS).tolist()
        if any(row[2] + row[3] > self.targets for row in table):
            raise self._damage(f"a block ends after its {self.targets:,} targets")
        self._blocks = {(row[0], row[1]): (row[2], row[3], row[4]) for row in table}

    def __contains__(self, key: Key) -> bool:
        return key in self._blocks

    def keys(self) -> Iterator[Key]:
        """Yield the names of the blocks in the order of the file."""
        return iter(self._blocks)

    def block(self, key: Key) -> Block:
        """Return a block; raise KeyError if the file has none of this name, FormatError if it is damaged."""
        from mudd_core import _core

        first, count, crc = self._blocks[key]
        kept = self.facts.kept
        ids, log_probs = (
            self._h5.read(name, first * kept, count * kept).reshape(count, kept)
            for name in ("ids", "log_probs")
        )
        if _core.crc32c(ids.tobytes() + log_probs.tobytes()) != crc:
            raise self._damage(
                f"the block of targets {first:,} to {first + count - 1:,} has another checksum"
            )
        size = self.facts.vocab_size
        if ids.size and not (0 <= int(ids.min()) <= int(ids.max()) < size and np.isfinite(log_probs).all()):
            raise self._damage(
                f"the block of targets from {first:,} on has ids outside of {size:,}, or infinite values"
            )
        return Block(key, ids, log_probs)

    def _damage(self, reason: str) -> FormatError:
        return FormatError(str(self.path), 0, f"{reason}; write it again with the command teach")
