"""Records of the training steps of an engine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import __version__, _core
from mudd_core.base.types import Array
from mudd_core.config.own_files import plain_name
from mudd_core.config.saved import config_hash
from mudd_core.fingerprint.lines import STAGES, Header, Key, Line
from mudd_core.fingerprint.parsed import line_of
from mudd_core.fingerprint.record import StepRecord, line_json

if TYPE_CHECKING:
    from mudd_core.engine.engine import Engine

_STORED = {"bfloat16": "uint16"}  # NumPy has no bfloat16
Wrap = Callable[["_core.NodeObserver"], "_core.NodeObserver"]


@dataclass
class Recording:
    """The result of `recording` after its block. lines: of all ranks. kept: the chosen values of this rank."""

    lines: tuple[Line, ...] = ()
    kept: dict[Key, Array] = field(default_factory=dict)

    def scalar(self, name: str) -> float:
        """Return a number of the step: "loss", "gradient norm", "clip factor", "rate"; NaN without one."""
        found = (
            line.samples[0] for line in self.lines if line.key.stage == "step" and line.key.value == name
        )
        return next(found, math.nan)

    def record(self, engine: Engine, step: int, data_hash: str = "") -> StepRecord:
        """Return the record of update `step` (from 1) of this engine."""
        header = Header(
            step=step,
            family=plain_name(engine.config.model.family),
            config_hash=config_hash(engine.config),
            data_hash=data_hash,
            isa=_core.isa(),
            precision=engine.model.precision,
            world=1 if engine.model.comm is None else engine.model.comm.world,
            package=__version__,
            loss=self.scalar("loss"),
            grad_norm=self.scalar("gradient norm"),
        )
        return StepRecord(header, self.lines)


@contextmanager
def recording(
    engine: Engine, *, keep: Collection[Key] = (), restore: bool = False, wrap: Wrap | None = None
) -> Iterator[Recording]:
    """Record the step that the engine, or a Trainer over it, takes inside the block; all ranks enter it together.

    The step has the bits of any other. keep: the values to copy (Recording.kept). restore: return the weights, moments
    and counts to their values before the block. wrap: returns the observer to use, for tests.
    """
    fingerprint, found = _core.Fingerprint(), Recording()
    comm = engine.model.comm
    rank = 0 if comm is None else comm.rank
    wanted = [(key.stage, key.run, key.place, key.value) for key in keep if key.rank == rank]
    values = _core.Values(wanted, fingerprint)
    before = {part.name: part.array.copy() for part in engine.state_parts()} if restore else {}
    with engine.observed(wrap(values) if wrap is not None else values):
        yield found
    if restore:
        parts = engine.state_parts(writable=True)
        for part in parts:
            part.array[...] = before[part.name]
        engine.load_state(parts)
    own = lines_of(fingerprint, rank)
    found.kept = kept_of(values, rank)
    if comm is None or comm.world == 1:
        found.lines = own
    else:
        texts = comm.all_gather(json.dumps([line_json(line) for line in own]).encode())
        found.lines = _merged([tuple(line_of(row) for row in json.loads(text)) for text in texts])


def record_step(
    engine: Engine,
    step: int,
    lr: float,
    batch: Mapping[str, Array] | None = None,
    *,
    keep: Collection[Key] = (),
    restore: bool = False,
    data_hash: str = "",
    wrap: Wrap | None = None,
) -> tuple[StepRecord, dict[Key, Array]]:
    """Take one step as Engine.train_step(step, lr, batch) and return its record and the values in `keep`.

    step: from 0; the record has the number step + 1. restore, wrap: see `recording`.
    """
    with recording(engine, keep=keep, restore=restore, wrap=wrap) as found:
        engine.train_step(step, lr, batch)
    return found.record(engine, step + 1, data_hash), found.kept


def lines_of(fingerprint: _core.Fingerprint, rank: int = 0) -> tuple[Line, ...]:
    """Return the lines of an observer."""
    return tuple(
        Line(
            Key(rank, run, stage, place, value),
            op,
            tuple(shape),
            dtype,
            digest,
            tuple(samples),
            begin,
            row,
            tuple(rows),
        )
        for stage, run, place, op, value, shape, dtype, begin, row, digest, samples, rows in fingerprint.lines()
    )


def kept_of(values: _core.Values, rank: int = 0) -> dict[Key, Array]:
    """Return the arrays of an observer."""
    return {
        Key(rank, run, stage, place, value): np.frombuffer(data, _STORED.get(dtype, dtype)).reshape(shape)
        for stage, run, place, value, shape, dtype, data in values.kept()
    }


def _merged(ranks: list[tuple[Line, ...]]) -> tuple[Line, ...]:
    """Return the lines of all ranks in the order of the step, and at equal times in the order of the ranks."""

    def instant(line: Line, at: int) -> tuple[int, int, int, int]:
        late = line.op == "sum over ranks" or STAGES.index(line.key.stage) > STAGES.index("sum")
        stage = STAGES.index(line.key.stage) if late else min(1, STAGES.index(line.key.stage))
        return stage, line.key.run, at, line.key.rank

    placed = [(instant(line, at), line) for lines in ranks for at, line in enumerate(lines)]
    return tuple(line for _, line in sorted(placed, key=lambda one: one[0]))
