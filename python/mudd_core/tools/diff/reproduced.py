"""Comparison of the values that a run has logged and saved with the values of its replayed steps."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.stored import stored_tensors
from mudd_core.fingerprint.ulps import steps_between
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records.events import StepRecord
from mudd_core.tools.compare.compared import COMPARED, ComparedRun
from mudd_core.tools.diff.states import folder_of, steps_of_checkpoints

_FLOATS = {
    "float32": "float32",
    "float16": "float16",
    "float64": "float64",
    "[('bfloat16', '<u2')]": "bfloat16",
}


@dataclass(frozen=True)
class OtherTensor:
    """A tensor of a checkpoint with other values than its step has here. ulps: NaN for a tensor of integers."""

    step: int
    name: str
    count: int
    size: int
    first_index: tuple[int, ...]
    ulps: float


@dataclass(frozen=True)
class Reproduced:
    """The comparison of a run's own records with its steps here. steps: that were compared.

    logged: the first step with another logged loss or gradient norm; None if there is none. both: both differ there.
    before: the logged values of the step before it are those that were made here. saved: the first tensor of
    the checkpoint with other values; None if there is none. final: the final hash is another one.
    """

    letter: str
    steps: int
    logged: int | None = None
    saved: OtherTensor | None = None
    final: bool = False
    both: bool = False
    before: bool = False

    @property
    def equal(self) -> bool:
        """Return whether the run's records have the values that were made here."""
        return self.logged is None and self.saved is None and not self.final


def reproduced(run: ComparedRun, made: Sequence[StepRecord], trainer: Trainer) -> Reproduced:
    """Compare the log, the checkpoint and the final hash of a run with steps that were made here.

    trainer: has made the last of these steps.
    """
    logged = _logged(run)
    steps = [record for record in made if record.step in logged]
    other = next((record.step for record in steps if logged[record.step] != _values(record)), None)
    last = trainer.step_done
    saved = None
    if last in steps_of_checkpoints(run):
        saved = _other_tensor(run, last, trainer.engine.state_parts())
    ended = run.final_hash and run.records.summary.get("step") == last
    final = bool(ended) and trainer.final_hash() != run.final_hash
    values = {record.step: _values(record) for record in steps}
    return Reproduced(
        run.letter,
        len(steps),
        other,
        saved,
        final,
        other is not None and not any(map(operator.eq, logged[other], values[other])),
        other is not None and other - 1 in values,
    )


def _logged(run: ComparedRun) -> Mapping[int, list[float]]:
    """Return the logged loss and gradient norm by step; values that are not finite are NaN."""
    table = run.updates
    if not all(name in table for name in ("step", *COMPARED)):
        return {}
    columns = [np.asarray(table[name], np.float64).tolist() for name in COMPARED]
    return {int(step): values for step, *values in zip(table["step"].tolist(), *columns, strict=True)}


def _values(record: StepRecord) -> list[float]:
    return [record.loss, record.grad_norm]


def _other_tensor(run: ComparedRun, step: int, parts: Sequence[StatePart]) -> OtherTensor | None:
    """Return the first tensor of a checkpoint with other bytes than the state here."""
    folder = folder_of(run, step)
    stored = stored_tensors(folder, read_manifest(folder))
    for part in parts:
        if part.name not in stored or stored[part.name].shape != part.global_shape:
            continue
        saved, own = np.asarray(stored[part.name]), np.ascontiguousarray(part.array)
        if saved.tobytes() != own.tobytes():
            return _measured(step, part.name, saved, own)
    return None


def _measured(step: int, name: str, saved: Array, own: Array) -> OtherTensor:
    width = saved.dtype.itemsize
    one, two = (np.frombuffer(array.tobytes(), np.uint8).reshape(-1, width) for array in (saved, own))
    differs = (one != two).any(axis=1)
    first = int(np.argmax(differs))
    index = tuple(int(at) for at in np.unravel_index(first, saved.shape)) if saved.shape else ()
    kind = _FLOATS.get(str(saved.dtype), "")
    ulps = float(steps_between(_plain(saved), _plain(own), kind).max()) if kind else float("nan")
    return OtherTensor(step, name, int(differs.sum()), saved.size, index, ulps)


def _plain(array: Array) -> Array:
    return array.view(np.uint16) if array.dtype.names else array
