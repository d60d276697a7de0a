"""A checkpoint that verifies and yet does not fit: its state and its weights are checked before they are used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core import checkpoint
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.members import build, entries, member
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint, StatePart, is_weight
from mudd_core.config import Config, config_hash, mesh_of
from mudd_core.dist import Comm
from mudd_core.run.records.events import Rewind

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True)
class _Counters:
    """The members that every checkpoint's state has."""

    step: int
    skips_in_row: int
    last_loss: float | None
    seconds: float
    anchor: int | None = None


@contextlib.contextmanager
def reading_state(found: Checkpoint) -> Iterator[None]:
    """Inside, the state is taken over; FormatError if it is not one that a run saves."""
    file = found.path / "manifest.json"
    counters = build(_Counters, found.state, file, "state: ")
    if counters.step != found.step:
        raise FormatError(
            str(file), 0, f"state: it is of step {counters.step}, the checkpoint of {found.step}"
        )
    for name, kind in (("skipped_steps", int), ("spike_losses", float), ("spike_norms", float)):
        if name in found.state or name == "skipped_steps":
            entries(found.state, name, kind, file, "state: ")
    for rewind in entries(found.state, "rewinds", dict, file, "state: ") if "rewinds" in found.state else []:
        build(Rewind, rewind, file, "state: rewinds: ")
    try:
        yield
    except UserError:
        raise
    except _WRONG as error:
        raise FormatError(str(file), 0, f"state: {type(error).__name__}: {error}") from error


def saved_weights(path: Path, facts: Mapping[str, Json], step: int | None) -> Checkpoint | None:
    """The weights of a run's newest checkpoint, None where it has none, or those of one step."""
    run_id, folder = member(facts, "run_id", str, path / "run.json"), path / "checkpoints"
    if step is None:
        return checkpoint.load_newest(folder, run_id=run_id, only=is_weight)
    return checkpoint.load_step(folder, step, run_id=run_id, only=is_weight)


def take_weights(model: Model, found: Checkpoint) -> None:
    """Copy a checkpoint's weights into a model; FormatError where names or shapes are not the model's."""
    file = str(found.path / "manifest.json")
    missing = sorted(model.parameters.keys() - found.tensors.keys())
    if missing:
        raise FormatError(file, 0, f"the weight '{missing[0]}' is missing")
    for name, value in found.tensors.items():
        try:
            model.set_parameter(name, value)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(file, 0, f"weight '{name}': {error}") from error


def load_newest(
    folder: Path, run_id: str, into: Sequence[StatePart], up_to: int | None = None, comm: Comm | None = None
) -> Checkpoint | None:
    """The newest step of the run that verifies, read into these parts; FormatError if it has other tensors."""
    try:
        return checkpoint.load_newest(folder, run_id=run_id, into=into, up_to=up_to, comm=comm)
    except UserError:
        raise
    except ValueError as error:  # whole and of this run, and yet with other tensors
        raise FormatError(str(folder), 0, str(error)) from error


@dataclass(frozen=True)
class Saver:
    """Where and as what the steps of a run are saved. comm: of all its ranks, which call this together."""

    folder: Path
    config: Config
    run_id: str
    comm: Comm | None = None

    def save(
        self, step: int, parts: Sequence[StatePart], state: Mapping[str, Json], spare: int | None
    ) -> None:
        """Commit a step and drop old ones but `spare`; SaveError if one of both fails."""
        mesh = mesh_of(self.config, 1 if self.comm is None else self.comm.world)
        axes = [(name, size) for name, size in (("data", mesh.data), ("fsdp", mesh.fsdp)) if size > 1]
        try:
            checkpoint.save(
                self.folder,
                step,
                parts,
                state,
                config_hash=config_hash(self.config),
                run_id=self.run_id,
                comm=self.comm,
                mesh=axes,
            )
            # Reads the new step back before an old one goes; a step that does not verify is a failed save.
            checkpoint.keep_last(
                self.folder,
                self.config.train.keep_last,
                run_id=self.run_id,
                saved_step=step,
                spare=spare,
                every=self.config.train.keep_every,
                comm=self.comm,
            )
        except (OSError, FormatError) as error:
            raise SaveError(f"[save] {error}") from error
