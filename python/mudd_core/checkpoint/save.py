"""Write checkpoints: rank 0 creates and commits the folder, and every rank writes and syncs its files in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, write_reason
from mudd_core.base.types import Array, Json
from mudd_core.checkpoint import manifest as manifests
from mudd_core.checkpoint.ranks import in_rounds, on_first
from mudd_core.checkpoint.same_step import is_saved
from mudd_core.checkpoint.state_part import LaterPart, StatePart, part_shape
from mudd_core.checkpoint.steps import MANIFEST, new_id, scan, step_folder
from mudd_core.checkpoint.verify import verify_sealed
from mudd_core.checkpoint.write_plan import HeldPart, plan_writes, stored_name
from mudd_core.checkpoint.written import Written, described
from mudd_core.dist import Comm

# Bytes reserved for names, headers and the manifest: for each part, and in total.
_NEED_PER_PART = 1024
_NEED_FIXED = 1 << 20
_SHARD_BYTES = 4 << 30  # of the largest file


class SaveOptions(TypedDict):
    """The keyword arguments of a save.

    config_hash, run_id: of the run, for the manifest. shard_bytes: largest file. comm: all ranks of the run make the
    call with their own parts. mesh: the sizes of the axes that shard the state.
    """

    config_hash: str
    run_id: str
    shard_bytes: NotRequired[int]
    comm: NotRequired[Comm | None]
    mesh: NotRequired[Sequence[tuple[str, int]]]


def save(
    checkpoints_dir: Path | str,
    step: int,
    parts: Iterable[StatePart],
    state: Mapping[str, Json],
    **options: Unpack[SaveOptions],
) -> Path:
    """Write `step-<step>` and return its folder, which survives a power failure from then on.

    parts: weights by name and optimizer planes as `plane/name`. They are written from their own memory, so do not
    change them during the save. An existing step of this run is kept if it verifies and has the same bytes, as after a
    repeated run; else it is replaced after the new one has been read back.

    Raise SaveError if the disk of a rank is full or rejects a write (nothing remains, older steps are untouched), and
    ValueError for parts or a state that cannot be stored; all ranks raise the same error.
    """
    save, comm = StepSave(checkpoints_dir, step, parts, state, **options), options.get("comm")
    with save.errors():
        if save.begin():
            written = in_rounds(comm, "save", step, save.pieces())
            on_first(comm, lambda: save.commit(written))
    return save.final


def space_for(state_bytes: int, parts: int = 0) -> int:
    """Return the free bytes that a save of a state requires in addition to the older steps."""
    return state_bytes + _NEED_PER_PART * parts + _NEED_FIXED


class StepSave:
    """One save in three stages: rank 0 makes the folder, all ranks write, rank 0 commits. Arguments: see `save`."""

    def __init__(
        self,
        checkpoints_dir: Path | str,
        step: int,
        parts: Iterable[StatePart],
        state: Mapping[str, Json],
        **options: Unpack[SaveOptions],
    ) -> None:
        """Plan the files; all ranks call this together."""
        held = list(parts)
        self._directory, self._step, self._state = Path(checkpoints_dir), step, state
        self._config_hash, self._run_id = options["config_hash"], options["run_id"]
        self._comm = comm = options.get("comm")
        self._plan = plan_writes(held, options.get("shard_bytes", _SHARD_BYTES), comm)
        self._axes = tuple(options.get("mesh", ())) or (("data", len(self._plan.files)),)
        self._arrays = _Arrays(held)
        self._own = self._plan.files[comm.rank if comm else 0]
        self.final = step_folder(self._directory, step)
        self._there = self._others = False
        self._temporary = ""
        self._writer: _core.AtomicFolder | None = None  # only on rank 0
        self._read: list[Array] = []  # the arrays that an asynchronous save reads

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Inside the block, raise SaveError for an error of the disk. After any error nothing of the save remains."""
        try:
            yield
        except OSError as error:
            self.close()
            raise SaveError(
                f"step {self._step} could not be saved in {self._directory}: {write_reason(error)}{self._older}"
            ) from error
        except BaseException:
            self.close()
            raise

    def begin(self) -> bool:
        """Create the temporary folder; return False if the step is saved already. All ranks call this together."""
        self._there, self._others = on_first(self._comm, self._prepare)  # all ranks raise the same error
        identity = (self._run_id, self._config_hash, self._state)
        if self._there and is_saved(self.final, self._plan, self._arrays.of, identity, self._comm):
            return False
        self._temporary = on_first(self._comm, self._make_folder)
        return True

    def pieces(self, live: _core.LiveBytes | None = None) -> list[Callable[[], Written]]:
        """Return functions that each write and sync a file of this rank, to be called in order.

        live: reads the bytes of all files, so that the parts may change after its release().
        """
        metadata = [("writer", "mudd_core"), ("run_id", self._run_id), ("step", str(self._step))]
        if live is not None:
            self._read = [self._arrays.of(part) for members in self._own.values() for part in members]
            live.lend(self._read)

        def write(file: str, members: list[HeldPart]) -> Written:
            tensors = [
                (_stored(part), part.dtype, _shape(part), self._arrays.to_write(part)) for part in members
            ]
            record = _core.write_shard(self._temporary, file, tensors, metadata, live)
            return record.bytes, record.crc, record.slices

        return [partial(write, file, members) for file, members in self._own.items()]

    def commit(self, written: list[list[Written]]) -> None:
        """Write the manifest and move the folder to its final place, on rank 0. written: the files of all ranks."""
        assert self._writer is not None
        files, tensors = described(self._plan, written)
        manifest = manifests.Manifest(
            self._step,
            self._run_id,
            self._config_hash,
            files,
            tensors,
            dict(self._state),
            len(self._plan.files),
            self._axes,
        )
        _commit(self._writer, manifests.encode(manifest), replace=self._there)
        self.close()

    def close(self) -> None:
        """Remove what is not committed, and release the lock of the temporary folder."""
        if self._writer is not None:
            self._writer.close()

    def _prepare(self) -> tuple[bool, bool]:
        """Return (the step exists already, other steps exist), on rank 0."""
        _core.make_folders(str(self._directory))
        _core.restore_set_aside(str(self._directory))
        steps, strange = scan(self._directory)
        if self._step in strange:
            what = strange[self._step]
            raise SaveError(f"{self.final} is {what}, expected a folder or nothing; move it away")
        return self._step in steps, any(other != self._step for other in steps)

    @property
    def _older(self) -> str:
        """The end of a message about a failed save, which describes the existing steps."""
        return "; older steps are intact" if self._others else ""

    def _make_folder(self) -> str:
        """Create the temporary folder on rank 0 and return its path."""
        parts = self._plan.parts
        need = space_for(sum(part.bytes for part in parts), len(parts))
        have = _core.free_space(str(self._directory))
        if have < need:
            raise SaveError(
                f"a checkpoint needs {need:,} bytes and {self._directory} has {have:,} free{self._older}. "
                f"Free some space{', or keep fewer steps with train.keep_last' if self._others else ''}"
            )
        self._writer = _core.AtomicFolder(str(self._directory), self.final.name, new_id())
        return str(self._writer.temporary)


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


def _shape(part: HeldPart) -> tuple[int, ...]:
    return part_shape(part.shape, part.end - part.begin)


def _stored(part: HeldPart) -> str:
    return stored_name(part.name, part.shape, part.begin, part.end)


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
