"""The manifest's writer and reader as they were in format 1.0, word for word below this line: never change them.

A test shows them slices, which they must refuse by the message they always had.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint.steps import MANIFEST

FORMAT = "mudd_core checkpoint"
VERSION = (1, 0)
MAX_BYTES = 100_000_000
BLOCK_BYTES = 1 << 20

_TAIL = re.compile(rb',\n "manifest_crc32c": "([0-9a-f]{8})"\n\}\n\Z')
_TAIL_BYTES = len(b',\n "manifest_crc32c": "00000000"\n}\n')
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_HEX = re.compile(r"(?:[0-9a-f]{8})*")


@dataclass(frozen=True)
class ShardFile:
    """One safetensors file: its size in bytes and the CRC-32C of all of it."""

    bytes: int
    crc32c: int


@dataclass(frozen=True)
class Slice:
    """A part of a tensor: bytes [begin, end) of a file hold the block at `offsets` of `shape`."""

    file: str
    begin: int
    end: int
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    crcs: tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor's dtype (safetensors name), its global shape, and the slices that make it up."""

    dtype: str
    shape: tuple[int, ...]
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Manifest:
    """All that manifest.json says. World and mesh are 1: the reader of version 1.0 takes whole tensors."""

    step: int
    run_id: str
    config_hash: str
    files: dict[str, ShardFile]
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    world: int = 1
    mesh: tuple[tuple[str, int], ...] = (("data", 1),)


def encode(manifest: Manifest) -> bytes:
    """The bytes of manifest.json. ValueError where the state is not JSON of finite numbers."""
    files = {
        name: {"bytes": file.bytes, "crc32c": f"{file.crc32c:08x}"} for name, file in manifest.files.items()
    }
    tensors = {
        name: {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "slices": [_encode_slice(part) for part in tensor.slices],
        }
        for name, tensor in manifest.tensors.items()
    }
    members = [
        _line("format", FORMAT),
        _line("version", list(VERSION)),
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


def _line(key: str, value: Any) -> str:
    return f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}"


def _table(key: str, members: dict[str, Any]) -> str:
    """A member a line, so that people can read it and diff it."""
    rows = ",\n".join(f" {_line(name, value)}" for name, value in members.items())
    return f" {json.dumps(key)}: {{\n{rows}\n }}" if rows else f" {json.dumps(key)}: {{}}"


def _encode_slice(part: Slice) -> dict[str, Any]:
    return {
        "file": part.file,
        "range": [part.begin, part.end],
        "offsets": list(part.offsets),
        "shape": list(part.shape),
        "crc32c": "".join(f"{crc:08x}" for crc in part.crcs),
    }


def read_manifest(folder: Path) -> Manifest:
    """Reads and checks the manifest of a step's folder; the shards are not touched.

    FormatError where it is damaged, OSError where it cannot be read, UserError where it is of a newer format.
    """
    path = folder / MANIFEST
    return decode(_core.read_file(str(path), MAX_BYTES), str(path))


def decode(data: bytes, path: str) -> Manifest:
    """The manifest in `data`; `path` is for messages. Errors as read_manifest."""
    tail = _TAIL.search(data, max(0, len(data) - _TAIL_BYTES))
    if tail is None:
        raise FormatError(
            path, len(data), "the manifest does not end with its checksum: it was cut or changed"
        )
    found, stored = _core.crc32c(data[: tail.start()]), int(tail.group(1), 16)
    if found != stored:
        raise FormatError(path, 0, f"the manifest's CRC-32C is {found:08x} where it says {stored:08x}")
    try:
        body = json.loads(data, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, 0, f"the manifest is not JSON: {error}") from None
    return _Decoder(path).manifest(body)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key appears twice")
    return out


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


class _Decoder:
    """Turns parsed JSON into a Manifest, naming the member that is wrong."""

    def __init__(self, path: str) -> None:
        self.path = path

    def refuse(self, reason: str) -> NoReturn:
        raise FormatError(self.path, 0, f"the manifest {reason}")

    def manifest(self, body: Any) -> Manifest:
        self.version(body)
        files = {
            self.file_name(name): self.shard_file(file) for name, file in self.table(body, "files").items()
        }
        tensors = {name: self.tensor(name, raw, files) for name, raw in self.table(body, "tensors").items()}
        if self.number(body, "block_bytes") != BLOCK_BYTES:
            self.refuse(f"has blocks of {body['block_bytes']} bytes; format 1 has {BLOCK_BYTES}")
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

    def version(self, body: Any) -> None:
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            self.refuse(f"is not of a {FORMAT}")
        version = self.numbers(body, "version")
        if len(version) != 2:
            self.refuse("has no version of two numbers")
        if version[0] > VERSION[0]:
            raise UserError(
                f"{self.path}: checkpoint format {version[0]}.{version[1]} is newer than the format "
                f"{VERSION[0]} that this mudd_core reads; use the mudd_core that wrote it, or a newer one"
            )

    def shard_file(self, raw: Any) -> ShardFile:
        crc = self.text(raw, "crc32c")
        if len(crc) != 8 or not _HEX.fullmatch(crc):
            self.refuse(f"has a checksum that is none: {crc!r}")
        return ShardFile(bytes=self.number(raw, "bytes"), crc32c=int(crc, 16))

    def tensor(self, name: str, raw: Any, files: dict[str, ShardFile]) -> Tensor:
        shape = self.numbers(raw, "shape")
        parts = self.get(raw, "slices", list)
        slices = tuple(self.slice(name, part, files) for part in parts)
        if len(slices) != 1 or slices[0].shape != shape or any(slices[0].offsets):
            self.refuse(
                f"cuts tensor {name!r} into slices of a mesh; this version of mudd_core reads whole tensors"
            )
        return Tensor(dtype=self.text(raw, "dtype"), shape=shape, slices=slices)

    def slice(self, name: str, raw: Any, files: dict[str, ShardFile]) -> Slice:
        file, place, crcs = self.text(raw, "file"), self.numbers(raw, "range"), self.text(raw, "crc32c")
        if file not in files:
            self.refuse(f"puts tensor {name!r} into {file!r}, which it does not list")
        if len(place) != 2 or not place[0] <= place[1] <= files[file].bytes:
            self.refuse(f"gives tensor {name!r} a range outside its file")
        if not _HEX.fullmatch(crcs):
            self.refuse(f"gives tensor {name!r} checksums that are none")
        return Slice(
            file=file,
            begin=place[0],
            end=place[1],
            offsets=self.numbers(raw, "offsets"),
            shape=self.numbers(raw, "shape"),
            crcs=tuple(int(crcs[i : i + 8], 16) for i in range(0, len(crcs), 8)),
        )

    def file_name(self, name: str) -> str:
        # Bare names only: nothing outside the step's folder is ever opened.
        if not _FILE_NAME.fullmatch(name):
            self.refuse(f"lists the file {name!r}, which is not a bare name")
        return name

    def get(self, raw: Any, key: str, kind: type) -> Any:
        value = raw.get(key) if isinstance(raw, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            self.refuse(f"has no {key} that is a {kind.__name__}")
        return value

    def table(self, raw: Any, key: str) -> dict[str, Any]:
        value: dict[str, Any] = self.get(raw, key, dict)
        return value

    def text(self, raw: Any, key: str) -> str:
        value: str = self.get(raw, key, str)
        return value

    def number(self, raw: Any, key: str) -> int:
        value: int = self.get(raw, key, int)
        if not 0 <= value < 1 << 63:
            self.refuse(f"has {key} out of range")
        return value

    def numbers(self, raw: Any, key: str) -> tuple[int, ...]:
        values = self.get(raw, key, list)
        if not all(type(value) is int and 0 <= value < 1 << 63 for value in values):
            self.refuse(f"has {key} that is not a list of whole numbers")
        return tuple(values)
