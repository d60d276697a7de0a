"""Write tokens.h5, the HDF5 file of a token cache, and compute its seal (token_cache.py lists the content).

The seal is one SHA-256 over everything that the metrics of a run depend on.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Array, Json
from mudd_core.data.sources.corpus import Split

if TYPE_CHECKING:
    from mudd_core import _h5

FORMAT = "mudd_core token cache 2"
SPLITS: tuple[Split, Split] = ("train", "valid")
BLOCK_BYTES = 2**20  # bytes that one checksum covers, and bytes of one write
_TEXTS = ("format", "fingerprint", "corpus_hash", "content_hash", "tokenizer", "tokenizer_hash")
_COUNTS = ("tokens", "documents", "text_bytes")
_DATASETS = ("ids", "document_starts")


def block_crcs(h5: _h5.File, path: str, name: str) -> list[int]:
    """Return the checksums of the blocks of a dataset; raise FormatError if they are not 32-bit integers."""
    found = h5.read(f"{name}_crc32c")
    if found.dtype != np.uint32:
        raise FormatError(path, 0, f"{name}_crc32c: expected uint32, got {found.dtype}")
    return [int(crc) for crc in found]


def seal_of(h5: _h5.File, path: str) -> str:
    """Return the seal of an open tokens.h5, a hash over attributes and each dataset's type, length and checksums."""
    parts: list[Json] = [[name, h5.text(name)] for name in _TEXTS]
    parts += [[name, h5.number(name)] for name in ("vocab_size", "eos_id")]
    for split in SPLITS:
        parts += [[f"{split}_{name}", h5.number(f"{split}_{name}")] for name in _COUNTS]
        for name in _DATASETS:
            _, count, dtype = h5.place(f"{split}/{name}")
            parts.append([f"{split}/{name}", str(dtype), count, [*block_crcs(h5, path, f"{split}/{name}")]])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class SplitIds:
    """The ids of a split in a plain file, because a contiguous dataset needs its length before its first byte.

    lengths: ids in each document. text_bytes: bytes of the documents' text.
    """

    file: Path
    lengths: npt.NDArray[np.uint32]
    text_bytes: int


def write_h5(
    file: Path, spools: dict[Split, SplitIds], dtype: np.dtype[np.generic], facts: dict[str, str | int]
) -> None:
    """Write tokens.h5. The totals are added to `facts`, and all facts are written last."""
    from mudd_core import _core, _h5

    content = hashlib.sha256()
    with _h5.File.create(str(file)) as h5:
        for s in SPLITS:
            spool = spools[s]
            ends = np.cumsum(spool.lengths, dtype=np.uint64)
            starts, tokens = ends - spool.lengths, int(ends[-1]) if ends.size else 0
            h5.create_dataset(f"{s}/ids", dtype, tokens)
            crcs: list[int] = []
            with spool.file.open("rb") as ids:
                while block := ids.read(BLOCK_BYTES):
                    first = len(crcs) * (BLOCK_BYTES // dtype.itemsize)
                    h5.write(f"{s}/ids", np.frombuffer(block, dtype), first)
                    crcs.append(_core.crc32c(block))
                    content.update(block)
            _write_array(h5, f"{s}/ids_crc32c", np.array(crcs, np.uint32))
            _write_array(h5, f"{s}/document_starts", starts)
            starts_crcs = np.array(_core.crc32c_blocks(starts), np.uint32)
            _write_array(h5, f"{s}/document_starts_crc32c", starts_crcs)
            facts[f"{s}_tokens"] = tokens
            facts[f"{s}_documents"] = len(starts)
            facts[f"{s}_text_bytes"] = spool.text_bytes
        facts["content_hash"] = content.hexdigest()
        for key, value in {**facts, "format": FORMAT}.items():
            if isinstance(value, int):
                h5.set_number(key, value)
            else:
                h5.set_text(key, value)
        h5.set_text("seal", seal_of(h5, str(file)))
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _write_array(h5: _h5.File, name: str, values: Array) -> None:
    h5.create_dataset(name, values.dtype, values.size)
    h5.write(name, values)
