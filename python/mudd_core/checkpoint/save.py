"""Writing checkpoints and deleting old ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint import manifest as manifests
from mudd_core.checkpoint.load import verify_sealed, verify_step
from mudd_core.checkpoint.steps import MANIFEST, find_step, list_steps, new_id, scan, step_folder

# Bytes that names, headers and the manifest may take for each tensor, and for the whole.
_NEED_PER_TENSOR = 1024
_NEED_FIXED = 1 << 20


def save(
    checkpoints_dir: Path | str,
    step: int,
    tensors: Mapping[str, NDArray[Any]],
    state: Mapping[str, Any],
    *,
    config_hash: str,
    run_id: str,
    shard_bytes: int = 4 << 30,
) -> Path:
    """Writes `step-<step>` and returns its folder; when this returns, it survives a power cut.

    tensors: weights by name and optimizer planes as `plane/name`; written from their own memory, so nothing
    may change them meanwhile. A step of this run that is there already is left as it is if it verifies and holds the
    same bytes, as those of a repeated run do; else it is replaced, once the new one has been read back.
    Raises SaveError where the disk is full or refuses (no trace is left, older steps are untouched),
    ValueError for tensors or state that cannot be stored.
    """
    directory, final = Path(checkpoints_dir), step_folder(checkpoints_dir, step)
    shards = _plan_shards(tensors, shard_bytes)
    try:
        _core.make_folders(str(directory))
        _core.restore_set_aside(str(directory))
        steps, strange = scan(directory)
        if step in strange:
            raise SaveError(f"{final} is {strange[step]}, expected a folder or nothing; move it away")
        if step in steps and _already_saved(final, run_id, tensors):
            return final
        _require_space(directory, tensors)
        folder = _core.AtomicFolder(str(directory), final.name, new_id())
        try:
            manifest = _write_shards(folder, shards, step, dict(state), config_hash, run_id)
            data = manifests.encode(manifest)
            if step in steps:
                _replace(folder, data)
            else:
                folder.commit(MANIFEST, data)
        finally:
            del folder  # what is not committed goes now, not when the traceback does
    except OSError as error:
        raise SaveError(
            f"step {step} could not be saved in {directory}: {error}; older steps are intact"
        ) from error
    return final


def _replace(folder: _core.AtomicFolder, manifest: bytes) -> None:
    folder.seal(MANIFEST, manifest)
    try:
        verify_sealed(folder.temporary)
    except FormatError as error:
        raise SaveError(
            f"the step does not read back as it was written: {error}; the old one stays"
        ) from error
    folder.replace()


def keep_last(
    checkpoints_dir: Path | str, keep: int, *, run_id: str, saved_step: int, spare: int | None = None
) -> list[int]:
    """Deletes a run's steps up to saved_step but the newest `keep` and `spare`; returns the deleted ones.

    saved_step is read back and verified first. Where it does not verify, FormatError, and nothing is deleted; so at
    least one verified step always remains. Steps behind it (damaged ones that a resume passed over), of another run
    or without a manifest that can be read are neither counted nor touched.
    """
    if keep < 1:
        raise ValueError(f"[checkpoint] keep: expected 1 or more, got {keep}")
    own = [
        step
        for step in list_steps(checkpoints_dir)
        if step <= saved_step and _run_of(find_step(checkpoints_dir, step)) == run_id
    ]
    doomed = [step for step in own[:-keep] if step != spare]
    if doomed:
        verify_step(step_folder(checkpoints_dir, saved_step), run_id=run_id)
    for step in doomed:
        _core.remove_committed(str(checkpoints_dir), f"step-{step}", new_id())
    return doomed


def drop_after(checkpoints_dir: Path | str, step: int, *, run_id: str) -> list[int]:
    """Deletes a run's steps behind `step`, the newest first; returns the deleted ones."""
    doomed = [
        later
        for later in reversed(list_steps(checkpoints_dir))
        if later > step and _run_of(find_step(checkpoints_dir, later)) == run_id
    ]
    for later in doomed:
        _core.remove_committed(str(checkpoints_dir), f"step-{later}", new_id())
    return doomed


def _run_of(folder: Path) -> str | None:
    """The run a step says it is of; None where its manifest cannot be read."""
    try:
        return manifests.read_manifest(folder).run_id
    except (FormatError, UserError, OSError):
        return None


def _already_saved(final: Path, run_id: str, tensors: Mapping[str, NDArray[Any]]) -> bool:
    try:
        found = verify_step(final)
    except (FormatError, OSError):
        return False
    if found.run_id != run_id:
        raise SaveError(
            f"{final} belongs to run {found.run_id}, not to this run {run_id}; it is left as it is"
        )
    return found.tensors.keys() == tensors.keys() and all(
        _core.crc32c_blocks(tensors[name]) == list(about.slices[0].crcs)
        for name, about in found.tensors.items()
    )


def _require_space(directory: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    need = sum(array.nbytes for array in tensors.values()) + _NEED_PER_TENSOR * len(tensors) + _NEED_FIXED
    have = _core.free_space(str(directory))
    if have < need:
        raise SaveError(
            f"a checkpoint needs {need:,} bytes and {directory} has {have:,} free; older steps are intact. "
            "Free some space, or keep fewer steps with train.keep_last"
        )


_Shards = dict[str, list[tuple[str, str, tuple[int, ...], NDArray[Any]]]]


def _plan_shards(tensors: Mapping[str, NDArray[Any]], shard_bytes: int) -> _Shards:
    """File name to its (name, dtype, shape, array): one series of files a plane, in the order given."""
    planes: dict[str, list[list[tuple[str, str, tuple[int, ...], NDArray[Any]]]]] = {}
    sizes: dict[str, int] = {}
    for name, array in tensors.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"[checkpoint] {name}: expected a NumPy array, got {type(array).__name__}")
        dtype = dtypes.name_of(array.dtype)
        if dtype is None:
            raise ValueError(f"[checkpoint] {name}: expected a dtype of safetensors, got {array.dtype}")
        plane = name.split("/", 1)[0] if "/" in name else "model"
        if not plane.isidentifier() or not plane.isascii():
            raise ValueError(f"[checkpoint] {name}: expected an identifier before the slash, got {plane!r}")
        files = planes.setdefault(plane, [[]])
        if files[-1] and sizes[plane] + array.nbytes > shard_bytes:
            files.append([])
        sizes[plane] = array.nbytes + (sizes[plane] if files[-1] else 0)
        files[-1].append((name, dtype, array.shape, np.require(array, requirements="C")))
    return {
        f"{plane}-{index + 1:05}-of-{len(files):05}.safetensors": file
        for plane, files in planes.items()
        for index, file in enumerate(files)
    }


def _write_shards(
    folder: _core.AtomicFolder,
    shards: _Shards,
    step: int,
    state: dict[str, Any],
    config_hash: str,
    run_id: str,
) -> manifests.Manifest:
    files: dict[str, manifests.ShardFile] = {}
    places: dict[str, manifests.Tensor] = {}
    metadata = [("writer", "mudd_core"), ("run_id", run_id), ("step", str(step))]
    for file, members in shards.items():
        record = folder.add_shard(file, members, metadata)
        files[file] = manifests.ShardFile(record.bytes, record.crc)
        for (name, dtype, shape, _), (begin, end, crcs) in zip(members, record.slices, strict=True):
            whole = manifests.Slice(file, begin, end, (0,) * len(shape), shape, tuple(crcs))
            places[name] = manifests.Tensor(dtype, shape, (whole,))
    return manifests.Manifest(step, run_id, config_hash, files, places, state)
