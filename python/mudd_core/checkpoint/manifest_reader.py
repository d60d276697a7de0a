"""Read manifest.json: every value is checked before it is used, and a newer major version is rejected."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NoReturn, TypeVar

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import strict_json
from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint.manifest import (
    BLOCK_BYTES,
    FORMAT,
    VERSION,
    Manifest,
    ShardFile,
    Slice,
    Tensor,
    slice_of,
)
from mudd_core.checkpoint.steps import MANIFEST

T = TypeVar("T")

MAX_BYTES = 100_000_000

_TAIL = re.compile(rb',\n "manifest_crc32c": "([0-9a-f]{8})"\n\}\n\Z')
_TAIL_BYTES = len(b',\n "manifest_crc32c": "00000000"\n}\n')
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_HEX = re.compile(r"(?:[0-9a-f]{8})*")


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a step's folder without reading the shards.

    Raise FormatError if it is damaged, OSError if it cannot be read, UserError if it has a newer format.
    """
    path = folder / MANIFEST
    return decode(_core.read_file(str(path), MAX_BYTES), str(path))


def decode(data: bytes, path: str) -> Manifest:
    """Return the manifest in `data`. path: for messages. The errors are as in read_manifest."""
    tail = _TAIL.search(data, max(0, len(data) - _TAIL_BYTES))
    if tail is None:
        raise FormatError(
            path, len(data), "the manifest does not end with its checksum: it was truncated or changed"
        )
    found, stored = _core.crc32c(data[: tail.start()]), int(tail.group(1), 16)
    if found != stored:
        raise FormatError(path, 0, f"the manifest's CRC-32C is {found:08x}, but it says {stored:08x}")
    try:
        body = strict_json(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, 0, f"the manifest is not JSON: {error}") from None
    return _Decoder(path).manifest(body)


class _Decoder:
    """A converter from parsed JSON to a Manifest; its errors name the wrong key."""

    def __init__(self, path: str) -> None:
        self.path = path

    def refuse(self, reason: str) -> NoReturn:
        raise FormatError(self.path, 0, f"the manifest {reason}")

    def manifest(self, body: Json) -> Manifest:
        self.version(body)
        files = {
            self.file_name(name): self.shard_file(file) for name, file in self.table(body, "files").items()
        }
        tensors = {name: self.tensor(name, raw, files) for name, raw in self.table(body, "tensors").items()}
        if (blocks := self.number(body, "block_bytes")) != BLOCK_BYTES:
            self.refuse(f"has blocks of {blocks} bytes; format 1 has {BLOCK_BYTES}")
        mesh = self.table(body, "mesh")
        return Manifest(
            step=self.number(body, "step"),
            run_id=self.text(body, "run_id"),
            config_hash=self.text(body, "config_hash"),
            files=files,
            tensors=tensors,
            state=self.table(body, "state"),
            world=self.number(body, "world"),
            mesh=tuple((axis, self.number(mesh, axis)) for axis in mesh),
        )

    def version(self, body: Json) -> None:
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            self.refuse(f"does not belong to a {FORMAT}")
        version = self.numbers(body, "version")
        if len(version) != 2:
            self.refuse("has no version such as 1.0")
        if version[0] > VERSION[0]:
            raise UserError(
                f"{self.path}: checkpoint format {version[0]}.{version[1]} is newer than the format "
                f"{VERSION[0]} that this mudd_core reads; use the mudd_core that wrote it, or a newer one"
            )

    def shard_file(self, raw: Json) -> ShardFile:
        crc = self.text(raw, "crc32c")
        if len(crc) != 8 or not _HEX.fullmatch(crc):
            self.refuse(f"has an invalid checksum: {crc!r}")
        return ShardFile(bytes=self.number(raw, "bytes"), crc32c=int(crc, 16))

    def tensor(self, name: str, raw: Json, files: dict[str, ShardFile]) -> Tensor:
        shape = self.numbers(raw, "shape")
        slices = tuple(self.slice(name, part, files) for part in self.get(raw, "slices", list))
        tensor = Tensor(dtype=self.text(raw, "dtype"), shape=shape, slices=slices)
        at = 0
        for part, (begin, end) in zip(slices, tensor.ranges(), strict=True):
            if begin != at:
                self.refuse(
                    f"{'repeats' if begin < at else 'leaves out'} elements of tensor {name!r} at {at}"
                )
            if begin == end and len(slices) > 1:
                self.refuse(f"has an empty slice of tensor {name!r}")
            if part != slice_of(shape, (begin, end), part.file, (part.begin, part.end), part.crcs):
                self.refuse(f"splits tensor {name!r} inside a row")
            at = end
        if at != math.prod(shape) or not slices:
            self.refuse(f"has slices of {at} elements of tensor {name!r}, which has {math.prod(shape)}")
        return tensor

    def slice(self, name: str, raw: Json, files: dict[str, ShardFile]) -> Slice:
        file, place, crcs = self.text(raw, "file"), self.numbers(raw, "range"), self.text(raw, "crc32c")
        if file not in files:
            self.refuse(f"puts tensor {name!r} into {file!r}, which it does not list")
        if len(place) != 2 or not place[0] <= place[1] <= files[file].bytes:
            self.refuse(f"has a range outside its file for tensor {name!r}")
        if not _HEX.fullmatch(crcs):
            self.refuse(f"has invalid checksums for tensor {name!r}")
        return Slice(
            file=file,
            begin=place[0],
            end=place[1],
            offsets=self.numbers(raw, "offsets"),
            shape=self.numbers(raw, "shape"),
            crcs=tuple(int(crcs[i : i + 8], 16) for i in range(0, len(crcs), 8)),
        )

    def file_name(self, name: str) -> str:
        # Accept only bare names, so that nothing outside the step's folder is ever opened.
        if not _FILE_NAME.fullmatch(name):
            self.refuse(f"lists the file {name!r}, which is not a plain file name")
        return name

    def get(self, raw: Json, key: str, kind: type[T]) -> T:
        value = raw.get(key) if isinstance(raw, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            self.refuse(f"has no {key} of type {kind.__name__}")
        return value

    def table(self, raw: Json, key: str) -> JsonObject:
        return self.get(raw, key, dict)

    def text(self, raw: Json, key: str) -> str:
        return self.get(raw, key, str)

    def number(self, raw: Json, key: str) -> int:
        value = self.get(raw, key, int)
        if not 0 <= value < 1 << 63:
            self.refuse(f"has {key} out of range")
        return value

    def numbers(self, raw: Json, key: str) -> tuple[int, ...]:
        values = self.get(raw, key, list)
        if not all(type(value) is int and 0 <= value < 1 << 63 for value in values):
            self.refuse(f"has {key} that is not a list of whole numbers")
        return tuple(values)
