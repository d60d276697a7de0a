"""The checkpoints of one run: list, size, save and load."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict

from mudd_core import _core, checkpoint
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.paths import existing
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint, StatePart
from mudd_core.checkpoint.async_save import AsyncSave
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.save import StepSave
from mudd_core.checkpoint.state_part import kept_for_reading
from mudd_core.checkpoint.stored import StoredTensor, stored_tensors
from mudd_core.config import Config, config_hash, mesh_of
from mudd_core.config.train import save_steps
from mudd_core.dist import Comm
from mudd_core.run.store.run_folder import RunFolder


class Identity(TypedDict):
    """The arguments of a save that describe its run."""

    config_hash: str
    run_id: str
    mesh: list[tuple[str, int]]


@dataclasses.dataclass(frozen=True)
class Retention:
    """The run of a save, and its steps that stay. spare, best_first: steps to retain, as in checkpoint.keep_last."""

    config: Config
    run_id: str
    spare: int | None = None
    best_first: Sequence[int] = ()

    def identity(self, comm: Comm | None) -> Identity:
        """Return the arguments of checkpoint.save that describe the run."""
        mesh = mesh_of(self.config, 1 if comm is None else comm.world)
        axes = [(name, size) for name, size in dataclasses.asdict(mesh).items() if size > 1]
        return {"config_hash": config_hash(self.config), "run_id": self.run_id, "mesh": axes}


class Checkpoints:
    """The checkpoints in a folder, which may not exist yet. run: the folder of the run."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._folder = run.checkpoint_folder

    def steps(self) -> list[int]:
        """Return the existing steps, ascending, without verification; raise UserError if they cannot be listed."""
        return checkpoint.list_steps(self._folder)

    def newest(self) -> int:
        """Return the newest step, without verification; 0 if there is none."""
        return max(self.steps(), default=0)

    def folder_of(self, step: int) -> Path:
        """Return the folder of a step, which may not exist."""
        return self.run.step_folder(step)

    def recover(self) -> None:
        """Clean up after killed writers. Call this under the lock of the work directory."""
        checkpoint.recover(self._folder)

    def load_newest(
        self, run_id: str, into: Sequence[StatePart], up_to: int | None = None, comm: Comm | None = None
    ) -> Checkpoint | None:
        """Load the newest step of the run that verifies into these parts; raise FormatError if it has other tensors.

        up_to: ignore later steps. comm: the communicator of all ranks of the run, which must all call this.
        """
        with self._of_other_tensors():
            return checkpoint.load_newest(self._folder, run_id=run_id, into=into, up_to=up_to, comm=comm)

    def load_step(
        self, step: int, run_id: str, into: Sequence[StatePart], comm: Comm | None = None
    ) -> Checkpoint:
        """Load exactly this step, as load_newest does; raise UserError if it does not exist."""
        with self._of_other_tensors():
            return checkpoint.load_step(self._folder, step, run_id=run_id, into=into, comm=comm)

    @contextlib.contextmanager
    def _of_other_tensors(self) -> Iterator[None]:
        """Inside the block, raise FormatError for a complete step of this run with other tensors."""
        try:
            yield
        except UserError:
            raise
        except ValueError as error:
            raise FormatError(str(self._folder), 0, str(error)) from error

    def go_back(
        self, step: int, run_id: str, into: Sequence[StatePart], comm: Comm | None = None
    ) -> Checkpoint:
        """Load the newest step up to `step`, as load_newest does; raise FormatError if there is none."""
        found = self.load_newest(run_id, into, step, comm)
        if found is None:
            raise FormatError(
                str(self._folder),
                0,
                f"the checkpoint of step {step}, to which the run should return, is missing",
            )
        return found

    def types(self) -> dict[str, str] | None:
        """Return tensor types by name from the newest readable manifest; None if there is no step."""
        steps = self.steps()
        for step in sorted(steps, reverse=True):
            try:
                return self.types_of(step)
            except (FormatError, OSError):  # the resume skips this step too, and reports it
                continue
        return {} if steps else None

    def stored(self, step: int) -> dict[str, StoredTensor]:
        """Return the tensors in a step's manifest, without verification; raise FormatError or OSError like types_of."""
        folder = self.folder_of(step)
        return stored_tensors(folder, read_manifest(folder))

    def types_of(self, step: int) -> dict[str, str]:
        """Return the tensor types of a step by name; raise FormatError or OSError if its manifest cannot be read."""
        manifest = read_manifest(self.folder_of(step))
        return {name: tensor.dtype for name, tensor in manifest.tensors.items()}

    def bytes(self) -> int:
        """Return the bytes of all steps on disk."""
        files = (file for step in self.steps() for file in self.folder_of(step).glob("*"))
        return sum(file.stat().st_size for file in files if file.is_file())

    def free_bytes(self) -> int:
        """Return the free bytes for this user on the disk of the checkpoints."""
        return _core.free_space(str(existing(self._folder)))

    def shares_disk_with(self, folder: Path) -> bool:
        """Return True if the checkpoints and a folder are, or will be, on one file system."""
        return existing(folder).stat().st_dev == existing(self._folder).stat().st_dev

    def drop_after(self, step: int, run_id: str) -> None:
        """Delete the run's steps after this one."""
        checkpoint.drop_after(self._folder, step, run_id=run_id)

    def save(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        kept: Retention,
        comm: Comm | None,
    ) -> None:
        """Commit a step and delete old ones; raise SaveError if either fails. comm: as in load_newest."""
        with _disk_errors():
            checkpoint.save(self._folder, step, parts, state, comm=comm, **kept.identity(comm))
            self._keep(step, kept, comm)

    def start_save(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        kept: Retention,
        comm: Comm | None,
        live: _core.LiveBytes,
    ) -> AsyncSave | None:
        """Start the same in threads; return None if the step was saved already. live: reads the parts."""
        own, now = kept_for_reading(parts), copy.deepcopy(dict(state))  # the run changes its lists meanwhile
        save = StepSave(self._folder, step, own, now, comm=comm, **kept.identity(comm))
        with _disk_errors(), save.errors():
            if save.begin():
                return AsyncSave(save, live, partial(self._keep, step, kept, None), comm)
            self._keep(step, kept, comm)
            return None

    def _keep(self, step: int, kept: Retention, comm: Comm | None) -> None:
        """Read the new step back and delete old ones. If the new step does not verify, the save has failed."""
        train = kept.config.train
        with _disk_errors():
            checkpoint.keep_last(
                self._folder,
                train.keep_last,
                run_id=kept.run_id,
                saved_step=step,
                spare=kept.spare,
                every=train.keep_every,
                always=save_steps(train.save_at),
                best_first=kept.best_first,
                comm=comm,
            )


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Inside the block, raise SaveError for an error of the disk."""
    try:
        yield
    except (OSError, FormatError) as error:
        raise SaveError(f"[save] {error}") from error
