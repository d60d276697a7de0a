"""Temporary plain files of ids, from which a token cache is built. After a kill, the next build appends to them.

{train,valid}.ids       ids, uint16 or uint32
{train,valid}.lengths   uint32, ids of each document
totals.json             replaced after each part: the totals so far; a restart truncates the files to these totals
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from mudd_core.data.cache.file import BLOCK_BYTES, SPLITS
from mudd_core.data.documents.encoding import ChildTokenizer
from mudd_core.data.documents.round_trip import RoundTrip
from mudd_core.data.documents.source import GROUP_BYTES, Frame, TextFiles, Texts, framed
from mudd_core.data.sources.corpus import Split, is_held_out
from mudd_core.data.sources.notes import SourceNote, note_of
from mudd_core.data.tokenizers.tokenizer import Tokenizer

# Text passed to the tokenizer in one call: 128 KiB a core, because its results need 30 times the memory of the text.
ENCODE_BYTES = min(2**22, max(2**18, 2**17 * (os.cpu_count() or 1)))


@dataclass(frozen=True)
class Encoding:
    """The way in which documents become ids; see DocumentSource. dtype: the type of the ids in the files."""

    tokenizer: Tokenizer
    frame: Frame
    hold_out: bool
    dtype: np.dtype[np.generic]


class Totals(TypedDict):
    """The totals of the complete parts.

    group_bytes: the value of GROUP_BYTES for which documents were divided into parts. bytes: the bytes of text, by
    split. train_files: training documents of each file. sources: notes of the source files. files: sizes and CRC-32 of
    the spool's files.
    dropped: the number of bad records, and the message of the first one. checked: the number of decoded documents, and
    how many of them were lost.
    """

    group_bytes: int
    parts: int
    bytes: dict[Split, int]
    train_files: list[int]
    sources: list[SourceNote]
    files: dict[str, list[int]]
    dropped: NotRequired[tuple[int, str]]
    checked: NotRequired[list[int]]


class Spool:
    """A folder of files with the complete parts of a build."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self.totals = self._complete() or self._empty()

    def ids(self, split: Split) -> Path:
        """Return the file of all ids of a split."""
        return self._folder / f"{split}.ids"

    def lengths(self, split: Split) -> npt.NDArray[np.uint32]:
        """Return the number of ids of each document of a split."""
        return np.fromfile(self._folder / f"{split}.lengths", np.uint32)

    def documents(self, split: Split) -> int:
        return self.totals["files"][f"{split}.lengths"][0] // 4

    def append(self, part: Texts, how: Encoding, report: Callable[[], None]) -> None:
        """Tokenize the documents of a part. report: called after each batch."""
        totals, counts = self.totals, Counter[int]()
        notes = [note_of(file) for file in part.whole_files()]
        whole = how.tokenizer.whole if isinstance(how.tokenizer, ChildTokenizer) else how.tokenizer
        round_trip = RoundTrip(whole, how.frame, totals.get("checked", [0, 0]))
        for batch in _batches(part.texts()):
            ids: dict[Split, list[bytes]] = {"train": [], "valid": []}
            lengths: dict[Split, list[int]] = {"train": [], "valid": []}
            rows = framed(how.tokenizer, how.frame, [text for _, text in batch])
            for (file, text), row in zip(batch, rows, strict=True):
                held = how.hold_out and is_held_out(hashlib.sha256(text).digest())
                split: Split = "valid" if held else part.split
                ids[split].append(row.astype(how.dtype).tobytes())
                lengths[split].append(row.size)
                totals["bytes"][split] += len(text)
                round_trip.look_at(split, text, row)
                counts[file] += split == "train"
            for split in SPLITS:
                self._write(f"{split}.ids", b"".join(ids[split]))
                self._write(f"{split}.lengths", np.array(lengths[split], np.uint32).tobytes())
            report()
        totals["train_files"] += [counts[file] for file in range(len(part.files))]
        totals["sources"] += notes
        if isinstance(part, TextFiles) and (dropped := part.bad.count_of(part.files)):
            count, first = totals.get("dropped", (0, part.bad.first))
            totals["dropped"] = (count + dropped, first)
        if round_trip.counts[0]:
            totals["checked"] = round_trip.counts
        totals["parts"] += 1
        new = self._folder / "totals.new"
        new.write_text(json.dumps(totals))
        os.replace(new, self._folder / "totals.json")

    def _write(self, name: str, data: bytes) -> None:
        with (self._folder / name).open("ab") as out:
            out.write(data)
        size, crc = self.totals["files"][name]
        self.totals["files"][name] = [size + len(data), zlib.crc32(data, crc)]

    def _complete(self) -> Totals | None:
        """Return the stored totals if they match the parts and the files (which a power failure may have changed)."""
        try:
            found: Totals = json.loads((self._folder / "totals.json").read_bytes())
            if found["group_bytes"] != GROUP_BYTES:
                return None
            for name, (size, wanted) in found["files"].items():
                os.truncate(self._folder / name, size)
                crc = 0
                with (self._folder / name).open("rb") as file:
                    while block := file.read(BLOCK_BYTES):
                        crc = zlib.crc32(block, crc)
                if crc != wanted:
                    return None
            return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _empty(self) -> Totals:
        names = [f"{split}.{kind}" for split in SPLITS for kind in ("ids", "lengths")]
        for name in names:
            (self._folder / name).write_bytes(b"")
        return Totals(
            group_bytes=GROUP_BYTES,
            parts=0,
            bytes=dict.fromkeys(SPLITS, 0),
            train_files=[],
            sources=[],
            files={name: [0, 0] for name in names},
        )


def _batches(texts: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    batch: list[tuple[int, bytes]] = []
    size = 0
    for file, text in texts:
        batch.append((file, text))
        size += len(text)
        if size >= ENCODE_BYTES or len(batch) == 1024:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
