"""Comparing every byte of a step with its manifest."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError
from mudd_core.checkpoint.manifest import Manifest, Slice
from mudd_core.checkpoint.manifest_reader import MAX_BYTES, decode
from mudd_core.checkpoint.ranks import in_rounds, on_first
from mudd_core.checkpoint.steps import MANIFEST, SET_ASIDE, step_of
from mudd_core.checkpoint.write_plan import stored_name
from mudd_core.dist import Comm


def verify_step(folder: Path | str, *, run_id: str | None = None, comm: Comm | None = None) -> Manifest:
    """Reads every byte of a step's folder and compares it with the manifest; returns the manifest.

    comm: all ranks call this; each reads its share of the files. FormatError (on all of them) names file, tensor and
    reason; also for a folder whose manifest is of another step, and of another run where `run_id` is given.
    """
    folder = Path(folder)
    manifest = _shared_manifest(folder, comm)
    here = str(folder / MANIFEST)
    if step_of(folder.name.removesuffix(SET_ASIDE)) != manifest.step:
        raise FormatError(here, 0, f"the manifest is of step {manifest.step}, the folder is {folder.name}")
    if run_id is not None and manifest.run_id != run_id:
        raise FormatError(here, 0, f"the manifest is of run {manifest.run_id}, this is run {run_id}")
    mine = sorted(manifest.files)[comm.rank :: comm.world] if comm else list(manifest.files)
    members = _members(manifest)
    pieces = [partial(_verify_file, folder, manifest, name, members[name]) for name in mine]
    in_rounds(comm, "data", manifest.step, pieces)
    return manifest


def verify_sealed(folder: Path | str) -> None:
    """Compare every byte of a complete folder with its manifest, whatever the folder's name is."""
    manifest = _shared_manifest(Path(folder), None)
    for name, members in _members(manifest).items():
        _verify_file(Path(folder), manifest, name, members)


def _shared_manifest(folder: Path, comm: Comm | None) -> Manifest:
    """The manifest, which rank 0 reads for all."""
    path = folder / MANIFEST

    def read() -> str:
        try:
            data: bytes = _core.read_file(str(path), MAX_BYTES)
        except FileNotFoundError:
            raise FormatError(str(path), 0, "the manifest is missing") from None
        decode(data, str(path))
        return data.decode()

    return decode(on_first(comm, read).encode(), str(path))


_Member = tuple[str, str, Slice]  # stored name, dtype, where


def _members(manifest: Manifest) -> dict[str, list[_Member]]:
    """What the manifest says of each file."""
    members: dict[str, list[_Member]] = {name: [] for name in manifest.files}
    for name, tensor in manifest.tensors.items():
        for part, (begin, end) in zip(tensor.slices, tensor.ranges(), strict=True):
            stored = stored_name(name, tensor.shape, begin, end)
            members[part.file].append((stored, tensor.dtype, part))
    return members


def _verify_file(folder: Path, manifest: Manifest, name: str, members: list[_Member]) -> None:
    path, file = str(folder / name), manifest.files[name]
    ranges = [checked_range(stored, part) for stored, _, part in members]
    try:
        _core.verify_file(path, file.bytes, file.crc32c, ranges)
    except FileNotFoundError:
        raise FormatError(path, 0, "the file is missing") from None
    _compare_header(path, members, manifest)


def checked_range(stored: str, part: Slice) -> tuple[str, int, int, list[int]]:
    """A slice as the core reads it: its name in messages, its bytes in the file, their checksums."""
    return f"tensor {stored!r}", part.begin, part.end, list(part.crcs)


def _compare_header(path: str, members: list[_Member], manifest: Manifest) -> None:
    """Compare the shard's own header with the manifest: a mismatch that checksums cannot find."""
    shard = _core.SafetensorsFile(path)
    found = {tensor: (dtype, shape, begin, end) for tensor, dtype, shape, begin, end in shard.tensors()}
    wanted = {stored: (dtype, part.shape, part.begin, part.end) for stored, dtype, part in members}
    if found != wanted:
        raise FormatError(path, 8, "the shard's header and the manifest describe different tensors")
    metadata = shard.metadata
    if metadata.get("run_id") != manifest.run_id or metadata.get("step") != str(manifest.step):
        raise FormatError(
            path, 8, f"the shard is of run {metadata.get('run_id')}, step {metadata.get('step')}"
        )
