"""manifest.json: the tensors of a checkpoint, the location of their bytes, and their checksums.

The file ends with its own CRC-32C over every byte before that last key. Format 1 stays readable forever
(tests/goldens/checkpoint_v1 and checkpoint_v1_1 are examples). If every tensor is whole, the file is identical to
version 1.0; version 1.1 adds tensors that are split into slices.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint.state_part import part_shape, row_of

FORMAT = "mudd_core checkpoint"
VERSION = (1, 1)
VERSION_OF_WHOLE_TENSORS = (1, 0)
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class ShardFile:
    """One safetensors file: its size in bytes and the CRC-32C of all of it."""

    bytes: int
    crc32c: int


@dataclass(frozen=True)
class Slice:
    """A part of a tensor: bytes [begin, end) of a file contain the block at `offsets` with `shape`.

    If a tensor has several slices, offsets and shape refer to the tensor as a matrix: all axes but the last are merged
    into rows.
    """

    file: str
    begin: int
    end: int
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    crcs: tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor's dtype (safetensors name), its global shape, and its slices."""

    dtype: str
    shape: tuple[int, ...]
    slices: tuple[Slice, ...]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the elements [begin, end) of each slice."""
        row = row_of(self.shape)
        begins = [part.offsets[0] * row if part.offsets else 0 for part in self.slices]
        return [
            (begin, begin + math.prod(part.shape)) for begin, part in zip(begins, self.slices, strict=True)
        ]


def slice_of(
    shape: tuple[int, ...],
    elements: tuple[int, int],
    file: str,
    place: tuple[int, int],
    crcs: tuple[int, ...],
) -> Slice:
    """Return the slice that contains elements [begin, end) of a tensor of this shape."""
    begin, end = elements
    stored = part_shape(shape, end - begin)
    offsets = (begin // row_of(shape), *(0,) * (len(stored) - 1)) if stored else ()
    return Slice(file, *place, offsets, stored, crcs)


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json."""

    step: int
    run_id: str
    config_hash: str
    files: dict[str, ShardFile]
    tensors: dict[str, Tensor]
    state: JsonObject
    world: int = 1
    mesh: tuple[tuple[str, int], ...] = (("data", 1),)


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of manifest.json; raise ValueError if the state is not JSON with finite numbers."""
    files: JsonObject = {
        name: {"bytes": file.bytes, "crc32c": f"{file.crc32c:08x}"} for name, file in manifest.files.items()
    }
    tensors: JsonObject = {
        name: {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "slices": [_encode_slice(part) for part in tensor.slices],
        }
        for name, tensor in manifest.tensors.items()
    }
    whole = all(len(tensor.slices) == 1 for tensor in manifest.tensors.values())
    members = [
        _line("format", FORMAT),
        _line("version", list(VERSION_OF_WHOLE_TENSORS if whole else VERSION)),
        _line("step", manifest.step),
        _line("run_id", manifest.run_id),
        _line("config_hash", manifest.config_hash),
        _line("world", manifest.world),
        _line("mesh", dict(manifest.mesh)),
        _line("block_bytes", BLOCK_BYTES),
        _table("files", files),
        _table("tensors", tensors),
        _table("state", manifest.state),
    ]
    head = ("{\n" + ",\n".join(members)).encode()
    return head + f',\n "manifest_crc32c": "{_core.crc32c(head):08x}"\n}}\n'.encode()


def _line(key: str, value: Json) -> str:
    return f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}"


def _table(key: str, members: JsonObject) -> str:
    """Return one key in each line, so that people can read and diff it."""
    rows = ",\n".join(f" {_line(name, value)}" for name, value in members.items())
    return f" {json.dumps(key)}: {{\n{rows}\n }}" if rows else f" {json.dumps(key)}: {{}}"


def _encode_slice(part: Slice) -> JsonObject:
    return {
        "file": part.file,
        "range": [part.begin, part.end],
        "offsets": list(part.offsets),
        "shape": list(part.shape),
        "crc32c": "".join(f"{crc:08x}" for crc in part.crcs),
    }
