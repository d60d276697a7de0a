"""Write GGUF, the file format of llama.cpp: typed fields, then tensors, one of which is in memory at a time.

The format is GGUF version 3 of ggml. All numbers are little-endian. A file has a header, the fields, a
list of the tensors, and the elements of each tensor at a multiple of 32 bytes. A field is a name and an encoded value;
the functions of this module encode values.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, Float32
from mudd_core.checkpoint import dtypes

MAGIC = b"GGUF"
_VERSION = 3
_ALIGNMENT = 32  # bytes
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9  # numbers of the types of values
_BLOCK = 32  # elements of a q8_0 block
_Q8_BLOCK = np.dtype([("scale", "<f2"), ("elements", "i1", _BLOCK)])


def uint32(value: int) -> bytes:
    """Encode an unsigned integer of 32 bits."""
    return struct.pack("<II", _UINT32, value)


def float32(value: float) -> bytes:
    """Encode a float of 32 bits."""
    return struct.pack("<If", _FLOAT32, value)


def boolean(value: bool) -> bytes:
    """Encode a boolean."""
    return struct.pack("<I?", _BOOL, value)


def string(value: str) -> bytes:
    """Encode a string."""
    return struct.pack("<I", _STRING) + _text(value)


def strings(values: Sequence[str]) -> bytes:
    """Encode a list of strings."""
    return struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(map(_text, values))


def int32s(values: Sequence[int]) -> bytes:
    """Encode a list of integers of 32 bits."""
    return struct.pack("<IIQ", _ARRAY, _INT32, len(values)) + np.asarray(values, "<i4").tobytes()


def float32s(values: Sequence[float]) -> bytes:
    """Encode a list of floats of 32 bits."""
    return struct.pack("<IIQ", _ARRAY, _FLOAT32, len(values)) + np.asarray(values, "<f4").tobytes()


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


@dataclass(frozen=True)
class Stored:
    """A type in which tensors are stored. number, file_type: the format's numbers of it and of a file with it.

    block, block_bytes: the elements that are encoded together, and their size. encode: encodes whole blocks.
    """

    name: str
    number: int
    file_type: int
    block: int
    block_bytes: int
    encode: Callable[[Float32], Array]

    def size(self, shape: Sequence[int]) -> int:
        """Return the bytes of a tensor."""
        return math.prod(shape) // self.block * self.block_bytes


def _q8_0(values: Float32) -> Array:
    """Encode blocks of 32 elements as one fp16 scale, the largest magnitude / 127, and 32 multiples of it."""
    blocks = values.reshape(-1, _BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    multiples = blocks * inverse
    whole = np.trunc(multiples)
    found = np.empty(len(blocks), _Q8_BLOCK)
    with np.errstate(over="ignore"):  # reported by _encoded
        found["scale"] = scales[:, 0]
    found["elements"] = whole + np.trunc(2 * (multiples - whole))  # halves away from zero, as in ggml
    return found


STORED: Mapping[str, Stored] = {
    one.name: one
    for one in (
        Stored("f32", 0, 0, 1, 4, lambda values: values),
        Stored("f16", 1, 1, 1, 2, lambda values: dtypes.rounded(values, "F16")),
        Stored("bf16", 30, 32, 1, 2, lambda values: dtypes.rounded(values, "BF16")),
        Stored("q8_0", 8, 7, _BLOCK, _Q8_BLOCK.itemsize, _q8_0),
    )
}


@dataclass(frozen=True)
class GgufTensor:
    """A tensor to write. shape: as in NumPy; the file has the sizes in reverse. make: computes the elements."""

    name: str
    shape: tuple[int, ...]
    stored: Stored
    make: Callable[[], Array]


def write_gguf(file: Path, fields: Mapping[str, bytes], tensors: Sequence[GgufTensor]) -> None:
    """Write a new file and sync it. fields: encoded values by name. The elements are computed one tensor at a time.

    Raise UserError for an element that its type cannot store, and OSError if the disk is full or rejects a write.
    """
    with open(file, "xb") as out:
        out.write(MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(fields)))
        for name, value in fields.items():
            out.write(_text(name) + value)
        offset = 0
        for tensor in tensors:
            sizes = tensor.shape[::-1]
            out.write(_text(tensor.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
            out.write(struct.pack("<IQ", tensor.stored.number, offset))
            offset += _padded(tensor.stored.size(tensor.shape))
        _pad(out)
        for tensor in tensors:
            for part in _encoded(tensor):
                out.write(part.data)
            _pad(out)
        out.flush()
        os.fsync(out.fileno())


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _pad(out: BinaryIO) -> None:
    out.write(bytes(_padded(out.tell()) - out.tell()))


def _encoded(tensor: GgufTensor) -> Iterator[Array]:
    """Yield the encoded elements in parts. Raise UserError for a finite value that becomes infinite."""
    values = np.ascontiguousarray(dtypes.as_float32(tensor.make()))
    if values.shape != tensor.shape:
        raise ValueError(f"[gguf] {tensor.name}: expected shape {tensor.shape}, got {values.shape}")
    flat = values.reshape(-1)
    for begin in range(0, flat.size, dtypes.AT_ONCE):
        given = flat[begin : begin + dtypes.AT_ONCE]
        part = tensor.stored.encode(given)
        _require_finite(tensor, given, part["scale"] if part.dtype == _Q8_BLOCK else part)
        yield np.ascontiguousarray(part).view(np.uint8)


def _require_finite(tensor: GgufTensor, given: Float32, part: Array) -> None:
    if np.isfinite(dtypes.as_float32(part)).all():
        return
    largest = float(given[np.argmax(np.abs(given))])
    raise UserError(
        f"[export] --type: expected weights that {tensor.stored.name} can hold, got {largest:g} in '{tensor.name}'; "
        "write --type=bf16 or --type=f32"
    )
