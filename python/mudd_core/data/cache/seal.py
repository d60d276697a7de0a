"""The seal of a token cache: one SHA-256 over everything that numbers of a run depend on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Json

if TYPE_CHECKING:
    from mudd_core import _h5

_TEXTS = ("format", "fingerprint", "corpus_hash", "content_hash", "tokenizer", "tokenizer_hash")
_COUNTS = ("tokens", "documents", "text_bytes")
_DATASETS = ("ids", "document_starts")


def block_crcs(h5: _h5.File, path: str, name: str) -> list[int]:
    """Checksums of the blocks of a dataset; FormatError if they are no 32-bit numbers."""
    found = h5.read(f"{name}_crc32c")
    if found.dtype != np.uint32:
        raise FormatError(path, 0, f"{name}_crc32c: expected uint32, got {found.dtype}")
    return [int(crc) for crc in found]


def seal_of(h5: _h5.File, path: str) -> str:
    """The seal of an open tokens.h5: of its attributes, and of types, lengths and block checksums of its datasets."""
    parts: list[Json] = [[name, h5.text(name)] for name in _TEXTS]
    parts += [[name, h5.number(name)] for name in ("vocab_size", "eos_id")]
    for split in ("train", "valid"):
        parts += [[f"{split}_{name}", h5.number(f"{split}_{name}")] for name in _COUNTS]
        for name in _DATASETS:
            _, count, dtype = h5.place(f"{split}/{name}")
            parts.append([f"{split}/{name}", str(dtype), count, [*block_crcs(h5, path, f"{split}/{name}")]])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
