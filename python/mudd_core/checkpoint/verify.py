"""Verify the bytes of a step against its manifest, and delete the steps that a verified one makes superfluous."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint.manifest import Manifest, Slice
from mudd_core.checkpoint.manifest_reader import MAX_BYTES, decode, read_manifest
from mudd_core.checkpoint.ranks import in_rounds, on_first
from mudd_core.checkpoint.steps import (
    MANIFEST,
    SET_ASIDE,
    find_step,
    list_steps,
    new_id,
    step_folder,
    step_name,
    step_of,
)
from mudd_core.checkpoint.write_plan import stored_name
from mudd_core.dist import Comm


def verify_step(folder: Path | str, *, run_id: str | None = None, comm: Comm | None = None) -> Manifest:
    """Compare every byte of a step's folder with its manifest, and return the manifest.

    comm: all ranks call this; each reads some of the files. Raise FormatError on all ranks with file, tensor and
    reason, also if the manifest is of another step, or of another run than `run_id`.
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
    """Return the manifest, which rank 0 reads for all."""
    path = folder / MANIFEST

    def read() -> str:
        try:
            data: bytes = _core.read_file(str(path), MAX_BYTES)
        except FileNotFoundError:
            raise FormatError(str(path), 0, "the manifest is missing") from None
        decode(data, str(path))
        return data.decode()

    return decode(on_first(comm, read).encode(), str(path))


_Member = tuple[str, str, Slice]  # stored name, dtype, place


def _members(manifest: Manifest) -> dict[str, list[_Member]]:
    """Return the manifest's entries for the tensors of each file."""
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
    """Return a slice as C++ reads it: its name in messages, its bytes in the file, their checksums."""
    return f"tensor {stored!r}", part.begin, part.end, list(part.crcs)


def _compare_header(path: str, members: list[_Member], manifest: Manifest) -> None:
    """Compare the shard's own header with the manifest, to find a mismatch that checksums cannot show."""
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


def keep_last(
    checkpoints_dir: Path | str,
    keep: int,
    *,
    run_id: str,
    saved_step: int,
    spare: int | None = None,
    every: int = 0,
    always: Collection[int] = (),
    best_first: Sequence[int] = (),
    comm: Comm | None = None,
) -> list[int]:
    """Delete a run's steps up to saved_step; return the deleted ones.

    These steps stay: the newest `keep` (0: all), `spare`, multiples of `every`, and the steps in `always`.

    best_first: steps in the order of their validation losses; the first of them that exists stays too. saved_step is
    read back and verified first. If it does not verify, raise FormatError and delete nothing; so at least one verified
    step always remains. Later steps (damaged ones that a resume passed over), steps of another run and steps without a
    readable manifest are neither counted nor deleted. comm: all ranks call this; each reads back some of the files, and
    rank 0 deletes.
    """
    if keep < 0:
        raise ValueError(f"[checkpoint] keep: expected 0 or more, got {keep}")

    def superfluous() -> list[int]:
        own = [
            step
            for step in list_steps(checkpoints_dir)
            if step <= saved_step and _run_of(find_step(checkpoints_dir, step)) == run_id
        ]
        old = own[:-keep] if keep else []
        best = next((step for step in best_first if step in own), None)
        kept = {spare, best, *always}
        return [step for step in old if step not in kept and not (every and step % every == 0)]

    doomed = on_first(comm, superfluous)
    if doomed:
        verify_step(step_folder(checkpoints_dir, saved_step), run_id=run_id, comm=comm)
    on_first(comm, lambda: _remove(checkpoints_dir, doomed))
    return doomed


def drop_after(checkpoints_dir: Path | str, step: int, *, run_id: str) -> list[int]:
    """Delete the steps of a run after `step`, the newest first, and return the deleted ones."""
    doomed = [
        later
        for later in reversed(list_steps(checkpoints_dir))
        if later > step and _run_of(find_step(checkpoints_dir, later)) == run_id
    ]
    _remove(checkpoints_dir, doomed)
    return doomed


def _remove(directory: Path | str, steps: list[int]) -> None:
    for step in steps:
        _core.remove_committed(str(directory), step_name(step), new_id())


def _run_of(folder: Path) -> str | None:
    """Return the run id in a step's manifest; None if it cannot be read."""
    try:
        return read_manifest(folder).run_id
    except (FormatError, UserError, OSError):
        return None
