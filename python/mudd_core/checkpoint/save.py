"""Write checkpoints: rank 0 creates and commits the folder, and every rank writes and syncs its files in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, write_reason
from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.checkpoint import manifest as manifests
from mudd_core.checkpoint.ranks import in_rounds, on_all, on_first
from mudd_core.checkpoint.state_part import LaterPart, StatePart, part_shape
from mudd_core.checkpoint.steps import MANIFEST, new_id, scan, step_folder
from mudd_core.checkpoint.verify import verify_sealed, verify_step
from mudd_core.checkpoint.write_plan import HeldPart, WritePlan, plan_writes, stored_name
from mudd_core.dist import Comm

# Bytes reserved for names, headers and the manifest: for each part, and in total.
_NEED_PER_PART = 1024
_NEED_FIXED = 1 << 20

# The record of a file: bytes, CRC, then (begin, end, block CRCs) of each tensor; lists if there are several ranks.
_Written = tuple[int, int, list[tuple[int, int, list[int]]]]


def save(
    checkpoints_dir: Path | str,
    step: int,
    parts: Iterable[StatePart],
    state: Mapping[str, Json],
    *,
    config_hash: str,
    run_id: str,
    shard_bytes: int = 4 << 30,
    comm: Comm | None = None,
    mesh: Sequence[tuple[str, int]] = (),
) -> Path:
    """Write `step-<step>` and return its folder, which survives a power failure from then on.

    parts: weights by name and optimizer planes as `plane/name`. They are written from their own memory, so do not
    change them during the save. An existing step of this run is kept if it verifies and has the same bytes, as after a
    repeated run; else it is replaced after the new one has been read back.

    comm: all ranks of the run call this with their own parts. mesh: the sizes of the axes that shard the state. Raise
    SaveError if the disk of a rank is full or rejects a write (nothing remains, older steps are untouched), and
    ValueError for parts or a state that cannot be stored; all ranks raise the same error.
    """
    held = list(parts)
    job = _Job(Path(checkpoints_dir), step, plan_writes(held, shard_bytes, comm))
    arrays = _Arrays(held)
    own = job.plan.files[comm.rank if comm else 0]
    writer: list[_core.AtomicFolder] = []  # used only on rank 0
    try:
        there, job.others = on_first(comm, job.prepare)  # all ranks raise the same error
        if there and _already_saved(job, own, arrays, (run_id, config_hash, state), comm):
            return job.final
        try:
            temporary = on_first(comm, lambda: job.begin(writer))
            metadata = [("writer", "mudd_core"), ("run_id", run_id), ("step", str(step))]
            pieces = [
                partial(_write, temporary, file, members, arrays, metadata) for file, members in own.items()
            ]
            written = in_rounds(comm, "save", step, pieces)

            def commit() -> None:
                files, tensors = _described(job.plan, written)
                axes = tuple(mesh) or (("data", len(job.plan.files)),)
                manifest = manifests.Manifest(
                    step, run_id, config_hash, files, tensors, dict(state), len(job.plan.files), axes
                )
                _commit(writer[0], manifests.encode(manifest), replace=there)

            on_first(comm, commit)
        finally:
            for folder in writer:
                folder.close()
    except OSError as error:
        raise SaveError(
            f"step {step} could not be saved in {job.directory}: {write_reason(error)}{job.older}"
        ) from error
    return job.final


def space_for(state_bytes: int, parts: int = 0) -> int:
    """Return the free bytes that a save of a state requires in addition to the older steps."""
    return state_bytes + _NEED_PER_PART * parts + _NEED_FIXED


class _Job:
    """The work of rank 0 on the folders of one save."""

    def __init__(self, directory: Path, step: int, plan: WritePlan) -> None:
        self.directory, self.plan = directory, plan
        self._step, self.final = step, step_folder(directory, step)
        self.others = False

    def prepare(self) -> tuple[bool, bool]:
        """Return (the step exists already, other steps exist)."""
        _core.make_folders(str(self.directory))
        _core.restore_set_aside(str(self.directory))
        steps, strange = scan(self.directory)
        if self._step in strange:
            what = strange[self._step]
            raise SaveError(f"{self.final} is {what}, expected a folder or nothing; move it away")
        return self._step in steps, any(other != self._step for other in steps)

    @property
    def older(self) -> str:
        """The end of a message about a failed save, which describes the existing steps."""
        return "; older steps are intact" if self.others else ""

    def begin(self, writer: list[_core.AtomicFolder]) -> str:
        """Create the temporary folder and return its path."""
        parts = self.plan.parts
        need = space_for(sum(part.bytes for part in parts), len(parts))
        have = _core.free_space(str(self.directory))
        if have < need:
            raise SaveError(
                f"a checkpoint needs {need:,} bytes and {self.directory} has {have:,} free{self.older}. "
                f"Free some space{', or keep fewer steps with train.keep_last' if self.others else ''}"
            )
        writer.append(_core.AtomicFolder(str(self.directory), self.final.name, new_id()))
        return str(writer[0].temporary)


class _Arrays:
    """The memory that contains this rank's parts."""

    def __init__(self, parts: Sequence[StatePart]) -> None:
        self._parts: dict[str, list[StatePart]] = {}
        for part in parts:
            self._parts.setdefault(part.name, []).append(part)

    def of(self, held: HeldPart) -> Array:
        """Return rows that this rank has, in the shape in which they are stored."""
        array = self._part(held).cut(held.begin, held.end).array
        return np.require(array, requirements="C").reshape(_shape(held))

    def to_write(self, held: HeldPart) -> Array | Callable[[], Array]:
        """Return the rows as `of` does, or a function that returns them if the part is computed later."""
        return partial(self.of, held) if isinstance(self._part(held), LaterPart) else self.of(held)

    def _part(self, held: HeldPart) -> StatePart:
        return next(
            part for part in self._parts[held.name] if part.begin <= held.begin and held.end <= part.end
        )


def _write(
    folder: str, file: str, members: list[HeldPart], arrays: _Arrays, metadata: list[tuple[str, str]]
) -> _Written:
    """Write and sync one file of this rank."""
    tensors = [(_stored(part), part.dtype, _shape(part), arrays.to_write(part)) for part in members]
    record = _core.write_shard(folder, file, tensors, metadata)
    return record.bytes, record.crc, record.slices


def _shape(part: HeldPart) -> tuple[int, ...]:
    return part_shape(part.shape, part.end - part.begin)


def _stored(part: HeldPart) -> str:
    return stored_name(part.name, part.shape, part.begin, part.end)


def _described(
    plan: WritePlan, written: list[list[_Written]]
) -> tuple[dict[str, manifests.ShardFile], dict[str, manifests.Tensor]]:
    """Return the manifest's entries for the files and tensors that all ranks have written."""
    files: dict[str, manifests.ShardFile] = {}
    slices: dict[str, list[manifests.Slice]] = {}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for planned, records in zip(plan.files, written, strict=True):
        for (file, members), (size, crc, places) in zip(planned.items(), records, strict=True):
            files[file] = manifests.ShardFile(size, crc)
            for part, (begin, end, crcs) in zip(members, places, strict=True):
                kinds[part.name] = part.dtype, part.shape
                slices.setdefault(part.name, []).append(
                    manifests.slice_of(part.shape, (part.begin, part.end), file, (begin, end), tuple(crcs))
                )
    tensors = {
        name: manifests.Tensor(*kinds[name], tuple(sorted(found, key=lambda part: part.offsets)))
        for name, found in slices.items()
    }
    return files, tensors


def _commit(folder: _core.AtomicFolder, manifest: bytes, *, replace: bool) -> None:
    if not replace:
        folder.commit(MANIFEST, manifest)
        return
    folder.seal(MANIFEST, manifest)
    try:
        verify_sealed(folder.temporary)
    except FormatError as error:
        raise SaveError(
            f"the new checkpoint differs from the data that were written: {error}; the old checkpoint is kept"
        ) from error
    folder.replace()


def _already_saved(
    job: _Job,
    own: dict[str, list[HeldPart]],
    arrays: _Arrays,
    identity: tuple[str, str, Mapping[str, Json]],
    comm: Comm | None,
) -> bool:
    """Return whether the existing step has this config and state, and the same bytes in the same parts.

    identity: run, config hash and state of the run.
    """
    run_id, config_hash, state = identity
    try:
        found = verify_step(job.final, comm=comm)
    except (FormatError, OSError):
        return False
    if found.run_id != run_id:
        raise SaveError(
            f"{job.final} belongs to run {found.run_id}, not to this run {run_id}; it is not overwritten"
        )
    if found.config_hash != config_hash or _untimed(found.state) != _untimed(state):
        return False
    stored = {
        (name, begin, end): list(part.crcs)
        for name, about in found.tensors.items()
        for part, (begin, end) in zip(about.slices, about.ranges(), strict=True)
    }
    if stored.keys() != {(part.name, part.begin, part.end) for part in job.plan.parts}:
        return False

    def same() -> bool:
        return all(
            _core.crc32c_blocks(arrays.of(part)) == stored[part.name, part.begin, part.end]
            for members in own.values()
            for part in members
        )

    return all(on_all(comm, same))


def _untimed(state: Mapping[str, Json]) -> JsonObject:
    """Return a state without its wall time, which differs in a repeated run."""
    return {
        name: value
        for name, value in json.loads(json.dumps(dict(state), default=str)).items()
        if name != "seconds"
    }
