"""Folders of config.json, safetensors and other files, which appear complete or not at all, and their index.

model.safetensors.index.json lists the file of each tensor, as Hugging Face writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, UserError, write_reason
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_text
from mudd_core.base.types import Array, Json
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.steps import new_id
from mudd_core.checkpoint.stored import StoredTensor
from mudd_core.checkpoint.write_plan import width

# Called with the folder of the written weights and the other files by name; returns files to add or replace.
Last: TypeAlias = "Callable[[Path, Mapping[str, bytes]], dict[str, bytes]]"


@dataclass(frozen=True)
class Later:
    """A tensor to write: its safetensors type, its shape, and a function that computes its elements on demand."""

    dtype: str
    shape: tuple[int, ...]
    make: Callable[[], Array]

    @classmethod
    def of(cls, array: Array) -> Later:
        """Return an existing array as a tensor to write."""
        return cls(dtypes.name_of(array.dtype) or "", array.shape, lambda: array)

    @classmethod
    def stored(cls, tensor: StoredTensor) -> Later:
        """Return a tensor of a file as a tensor to write."""
        return cls(dtypes.name_of(tensor.dtype) or "", tensor.shape, lambda: np.asarray(tensor))

    def after(self, call: Callable[[], None]) -> Later:
        """Return the same tensor, with a call before its elements are computed."""

        def make() -> Array:
            call()
            return self.make()

        return Later(self.dtype, self.shape, make)

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return math.prod(self.shape) * width(self.dtype)

    def contiguous(self) -> Array:
        """Compute the elements as a contiguous array."""
        return np.ascontiguousarray(self.make())


def write_folder(
    folder: Path,
    settings: Mapping[str, Json],
    weights: Mapping[str, Later | Array],
    *,
    shard_bytes: int,
    files: Mapping[str, bytes] | None = None,
    place: str = "[export]",
    names: tuple[str, str] = ("config.json", "model"),
    last: Last | None = None,
) -> None:
    """Write config.json, other files, and model.safetensors or files of at most shard_bytes with their index.

    weights: computed and written one at a time. files: content by name, which may include a folder. place: for
    messages. names: of the settings file, and of the weights without their suffix. last: called with the folder of the
    written weights and the content of the other files; it returns files to add or replace. The folder appears complete
    or not at all, and replaces an existing one. Raise SaveError if the disk is full or rejects a write.
    """
    later = {name: one if isinstance(one, Later) else Later.of(one) for name, one in weights.items()}
    settings_file, stem = names
    shards = _shards(later, shard_bytes, stem)
    try:
        _core.make_folders(str(folder.parent))
        own = new_id()
        writer = _core.AtomicFolder(str(folder.parent), folder.name, own)
        try:
            for file, members in shards.items():
                writer.add_shard(file, members, [("format", "pt")])
            work = folder.parent / f"{folder.name}.tmp-{own}"
            text, found = json.dumps(dict(settings), indent=2) + "\n", dict(files or {})
            if len(shards) > 1:
                where = {member[0]: file for file, members in shards.items() for member in members}
                total = sum(tensor.bytes for tensor in later.values())
                found[INDEX_NAME] = index_text(where, total).encode()
            if last is not None:
                found |= last(work, {**found, settings_file: text.encode()})
            for name, data in found.items():
                _core.make_folders(str((work / name).parent))
                _core.replace_file(str(work / name), data)
            if folder.exists():
                writer.seal(settings_file, text)
                writer.replace()
            else:
                writer.commit(settings_file, text)
        finally:
            del writer  # delete uncommitted files now, not when the traceback is freed
    except OSError as error:
        raise SaveError(f"{place} {folder} could not be written: {write_reason(error)}") from error


_Member: TypeAlias = "tuple[str, str, tuple[int, ...], Callable[[], Array]]"


def _shards(weights: Mapping[str, Later], shard_bytes: int, stem: str) -> dict[str, list[_Member]]:
    """Return (name, dtype, shape, function that returns the array) of the tensors in each file, in the given order."""
    files: list[list[_Member]] = [[]]
    size = 0
    for name, tensor in weights.items():
        if files[-1] and size + tensor.bytes > shard_bytes:
            files.append([])
            size = 0
        files[-1].append((name, tensor.dtype, tensor.shape, tensor.contiguous))
        size += tensor.bytes
    if len(files) == 1:
        return {f"{stem}.safetensors": files[0]}
    return {f"{stem}-{i + 1:05}-of-{len(files):05}.safetensors": file for i, file in enumerate(files)}


INDEX_NAME = "model.safetensors.index.json"


def index_text(files: Mapping[str, str], total_bytes: int) -> str:
    """Return the content of an index. files: name of the file by tensor. total_bytes: of all tensors."""
    return json.dumps({"metadata": {"total_size": total_bytes}, "weight_map": dict(files)}, indent=2) + "\n"


def indexed_files(folder: Path) -> list[Path] | None:
    """Return the files that the index of a folder names, sorted; None if the folder has no index.

    Raise FormatError for a damaged index, and UserError for one that names files elsewhere or missing files.
    """
    index = folder / INDEX_NAME
    places = _places(index)
    if places is None:
        return None
    for name in (names := sorted(set(places.values()))):
        if not isinstance(name, str) or "/" in name or not local(name, f"{index}: file").name:
            raise UserError(f"{index}: expected the name of a file in the same folder, got {name!r}")
        if not (folder / name).is_file():
            raise UserError(f"{index} names a file '{name}' that is not in {folder}; copy the folder again")
    return [folder / name for name in names]


def require_indexed(folder: Path, found: Collection[str]) -> None:
    """Raise FormatError for a tensor of a folder's index that none of its files has. found: the names in the files."""
    index = folder / INDEX_NAME
    places = _places(index) or {}
    if absent := sorted(set(places) - set(found)):
        name = absent[0]
        raise FormatError(
            str(index),
            0,
            f"expected tensor '{name}' in '{places[name]}', which does not contain it ({len(absent)} "
            "tensors are missing); copy the folder again",
        )


def _places(index: Path) -> dict[str, str] | None:
    """Return the name of the file by tensor; None if there is no index."""
    if not index.is_file():
        return None
    try:
        places = json.loads(read_text(index))["weight_map"]
        _ = sorted(set(places.values()))  # TypeError unless all values are strings
        return dict(places)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(str(index), 0, f"not an index of safetensors files ({error})") from error
