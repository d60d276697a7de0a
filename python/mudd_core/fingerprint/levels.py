"""Runs of a model on a batch at an instruction set level, in a child process: a process has one level.

The folder of a run has the model (Model.save), the batch and the results; nothing in it is executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.child import Child
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.engine.model import Model
from mudd_core.fingerprint.lines import Key, Line
from mudd_core.fingerprint.observed import require_no_patch
from mudd_core.fingerprint.parsed import line_of, parsed

MODEL, BATCH, LINES, VALUES = "model", "batch", "lines.jsonl", "values"
_PROGRAM = "mudd_core.fingerprint.level_process"
_SECONDS = 24 * 3600.0


def require_levels(levels: Sequence[str]) -> None:
    """Raise UserError unless these are two levels that this CPU has."""
    names = list(_core.isa_levels())
    known = names[: names.index(_core.detected_isa()) + 1]
    if isinstance(levels, str) or len(levels) != 2 or any(level not in known for level in levels):
        raise UserError(
            f"[diff] levels: expected two levels of this CPU, of {', '.join(known)}, got {levels!r}; to compare other "
            "machines, record a step on each: launch.py diff --record"
        )


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to files in a folder, which is created."""
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def read_arrays(folder: Path) -> dict[str, Array]:
    """Return the arrays in a folder of write_arrays by name."""
    return {file.stem: np.load(file, allow_pickle=False) for file in folder.iterdir()}


class AtLevel:
    """Runs of a model on a batch at a level. folder: a new one for its files."""

    def __init__(
        self, model: Model, batch: npt.ArrayLike | Mapping[str, npt.ArrayLike], level: str, folder: Path
    ) -> None:
        require_no_patch(model)
        if model.pairs or model.teaching or model.regularized:
            raise UserError(
                "[diff] levels: expected a model with the loss of tokens, got another loss; compare records instead"
            )
        self.precision, self.loss = model.precision, math.nan
        self._normalize, self._level, self._folder = model.normalize, level, folder
        folder.mkdir()
        model.save(folder / MODEL)
        arrays, _ = model.arrays_of(batch)
        write_arrays(folder / BATCH, arrays)

    def lines(self) -> tuple[Line, ...]:
        """Return the lines of all values."""
        self._run([])
        rows = (self._folder / LINES).read_bytes().splitlines()
        return tuple(line_of(parsed(row, number)) for number, row in enumerate(rows, 1))

    def values(self, keys: Sequence[Key]) -> dict[Key, Array]:
        """Return copies of some values."""
        self._run(keys)
        found = read_arrays(self._folder / VALUES)
        return {key: found[str(at)] for at, key in enumerate(keys)}

    def _run(self, keys: Sequence[Key]) -> None:
        """Run the model once in a child process. Raise UserError with its last message if it fails."""
        asked = {
            "folder": str(self._folder),
            "normalize": self._normalize,
            "keys": [list(key) for key in keys],
        }
        child = Child(_PROGRAM, environment={"MUDD_MAX_ISA": self._level}, hears_errors=True)
        output, errors = child.all_output(json.dumps(asked).encode(), _SECONDS)
        if child.code():
            said = errors.decode(errors="replace").strip().splitlines()
            raise UserError(
                f"[diff] levels: the process of level {self._level} ended with {child.ending()}: "
                f"{said[-1] if said else 'no message'}"
            )
        self.loss = float(json.loads(output)["loss"])
