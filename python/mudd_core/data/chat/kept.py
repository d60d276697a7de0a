"""Tokenized conversations in their cache folder: written once, sealed, and read by index."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError
from mudd_core.base.members import object_in
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Array, Int64, JsonObject
from mudd_core.data.chat.masks import Example
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.sources.corpus import HELD_OUT_MODULUS, HELD_OUT_REMAINDER

IDS = "ids.bin"  # int32, one example after another; an id with a loss is stored as its bitwise complement
TABLE = "examples.bin"  # int32, a row of _COLUMNS values for each example
MANIFEST = "chat.json"
FORMAT = 1
_COLUMNS, _HELD = 5, 3


@dataclass(frozen=True)
class Entry:
    """An example to store.

    number: its index in the file, from 1. digest: of the conversation. held: used for validation.
    """

    example: Example
    number: int
    digest: bytes
    held: bool


@dataclass(frozen=True)
class Kept:
    """The stored examples of a folder.

    The arrays have an entry for each of the n examples: its length in ids; the number of ids in its system turn, or -1;
    its index in its file, from 1; whether it is held out; its number of targets with a loss. facts: from the manifest.
    seal: SHA-256 of the manifest, which contains the hashes of the files.
    """

    folder: Path
    lengths: Int64
    heads: Int64
    numbers: Int64
    held: Int64
    counted: Int64
    facts: JsonObject
    seal: str

    def example(self, file: BoundedFile, at: int, starts: Int64) -> Example:
        """Return the example at this index. file: the opened IDS file. starts: the first id of each example in it."""
        data = file.read(4 * int(starts[at]), 4 * int(self.lengths[at]), "an example")
        stored = np.frombuffer(data, "<i4").astype(np.int64)
        counts = stored < 0
        return Example(np.where(counts, ~stored, stored), counts, int(self.heads[at]))

    def files(self, count: int, answers: int) -> Int64 | None:
        """Return the index of the file of each example; None if the stored numbers do not show it.

        count: the number of files. answers: the examples of a record. A number that does not rise starts another file.
        """
        numbers = self.numbers[::answers]
        found: Int64 = np.repeat(np.cumsum(np.diff(numbers, prepend=0) <= 0), answers)
        return found if found.size and found[-1] + 1 == count else None

    def starts(self) -> Int64:
        """Return the number of ids before each example."""
        ends: Int64 = np.cumsum(self.lengths)
        return ends - self.lengths


def write_kept(
    root: Path,
    name: str,
    entries: Iterable[Entry],
    files: dict[str, bytes],
    facts: Callable[[], JsonObject],
    *,
    hold_out: bool,
) -> None:
    """Write a folder of examples, complete or not at all; raise SaveError if the disk rejects it.

    files: further files of the folder. facts: returns the facts of the manifest after the last entry. hold_out: selects
    the validation examples by their digests.
    """
    try:
        folder = _core.AtomicFolder(str(root), name, str(os.getpid()))
        try:
            work = Path(folder.temporary)
            hashes: JsonObject = {}
            rows: list[tuple[int, ...]] = []
            digests: list[bytes] = []
            with (work / IDS).open("xb") as out:
                digest = hashlib.sha256()
                for entry in entries:
                    one = entry.example
                    data = np.where(one.counts, ~one.ids, one.ids).astype("<i4").tobytes()
                    digest.update(data)
                    out.write(data)
                    rows.append((one.ids.size, one.head, entry.number, entry.held, int(one.counts[1:].sum())))
                    digests.append(entry.digest)
                hashes[IDS] = digest.hexdigest()
                out.flush()
                os.fsync(out.fileno())
            table = np.array(rows, "<i4").reshape(-1, _COLUMNS)
            if hold_out:
                table[:, _HELD] = held_out(digests)
            for file, content in {**files, TABLE: table.tobytes()}.items():
                hashes[file] = hashlib.sha256(content).hexdigest()
                with (work / file).open("xb") as out:
                    out.write(content)
                    out.flush()
                    os.fsync(out.fileno())
            folder.commit(
                MANIFEST, json.dumps({"format": FORMAT, "files": hashes, **facts()}, indent=1) + "\n"
            )
        finally:
            del folder
    except OSError as error:
        raise SaveError(
            f"[data.cache_dir] {root / name} cannot be written: {error.strerror or error}; free some space or choose "
            "another data.cache_dir"
        ) from None


def held_out(digests: list[bytes]) -> list[bool]:
    """Return True for each validation conversation; documents follow the same rule (data/sources/corpus.py).

    digests: hashes of the conversations' content.
    """
    found = [int.from_bytes(digest, "big") % HELD_OUT_MODULUS == HELD_OUT_REMAINDER for digest in digests]
    if any(found) and not all(found):
        return found
    least = min(digests, default=b"")
    return [digest == least and len(set(digests)) > 1 for digest in digests]


def open_kept(folder: Path) -> Kept:
    """Open the examples of a folder; raise FormatError if a file has changed since it was written."""
    manifest = read_bytes(folder / MANIFEST)
    facts = object_in(folder / MANIFEST)
    hashes = facts.get("files")
    if facts.get("format") != FORMAT or not isinstance(hashes, dict) or not {IDS, TABLE} <= hashes.keys():
        raise _damage(folder / MANIFEST, "it is not a manifest of chat data")
    for name in hashes:
        if not (folder / name).is_file() or _hash_of(folder / name) != hashes[name]:
            raise _damage(folder / name, "it does not match its checksum")
    table: Array = np.frombuffer(read_bytes(folder / TABLE), "<i4").astype(np.int64).reshape(-1, _COLUMNS)
    lengths, heads, numbers, held, counted = (np.ascontiguousarray(table[:, at]) for at in range(_COLUMNS))
    seal = hashlib.sha256(manifest).hexdigest()
    return Kept(folder, lengths, heads, numbers, held, counted, facts, seal)


def _hash_of(file: Path) -> str:
    with BoundedFile(file) as opened:
        return opened.sha256().hex()


def _damage(file: Path, what: str) -> FormatError:
    return FormatError(str(file), 0, f"{what}; delete {file.parent}, and it is rebuilt from the data")
