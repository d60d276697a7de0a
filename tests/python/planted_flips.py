"""The smallest faults in a training step: the last bit of one element is flipped right after a value is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from mudd_core import _core
from mudd_core.config import Config, ModelConfig
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from mudd_core.fingerprint import Key, Line, Pair, StepRecord, first_difference, record_step
from mudd_core.fingerprint.recording import lines_of
from rank_runs import batch_of, config_in_shards

SMALL = {"vocab_size": 61, "max_seq_len": 16}


def engine_of(
    family: str, *, model: dict[str, Any] | None = None, comm: Comm | None = None, **settings: Any
) -> Engine:
    """Return an engine of a small model with micro-batches of two sequences."""
    from small_models import CASES  # it imports torch

    return engine_for(dataclasses.replace(CASES[family][0], **(SMALL | (model or {}))), comm, **settings)


def engine_for(model: ModelConfig, comm: Comm | None = None, **settings: Any) -> Engine:
    """Return an engine of a model with micro-batches of two sequences."""
    config: Config = config_in_shards(model, **({"micro_batch_size": 2} | settings))
    return Engine(config, Model(config.model, seed=3, precision=config.train.precision, comm=comm))


def record(engine: Engine, **options: Any) -> StepRecord:
    """Record update 1 of an engine and return to the state before it."""
    return record_step(engine, 0, 1e-3, batch_of(engine.config, 0), restore=True, **options)[0]


class Planted:
    """A wrap for `record` that flips the last bit of element `element` of a value."""

    def __init__(self, key: Key, element: int = 0, rank: int = 0) -> None:
        self._key, self._element, self._rank = key, element, rank
        self._flip: Any = None

    def __call__(self, inner: _core.NodeObserver) -> _core.NodeObserver:
        if self._key.rank != self._rank:
            return inner
        _, run, stage, place, value = self._key
        testing: Any = _core
        self._flip = testing.testing.Flip(inner, stage, run, place, value, self._element)
        flip: _core.NodeObserver = self._flip
        return flip

    @property
    def flipped(self) -> int:
        """How many values have been changed."""
        return 0 if self._flip is None else int(self._flip.flipped)


def one_of_each(lines: tuple[Line, ...]) -> Iterator[Line]:
    """Yield a line for each op, stage and kind of value."""
    seen = set()
    for line in lines:
        of_weight = line.key.value.startswith("gradient of ") and "of input" not in line.key.value
        kind = (line.op, line.key.stage, "gradient of a weight" if of_weight else line.key.value)
        if kind not in seen:
            seen.add(kind)
            yield line


def planted(engine: Engine, before: StepRecord, line: Line) -> Pair | None:
    """Return the first difference after a fault in this value, which must be planted once."""
    flip = Planted(line.key, int(np.prod(line.shape)) // 2)
    found = first_difference(before, record(engine, wrap=flip))
    assert flip.flipped == 1, line.key
    return found


def lines_on(model: Model, batch: dict[str, Any], wrap: Planted | None = None) -> tuple[Line, ...]:
    """Return the lines of a forward and a backward pass of a model on a batch."""
    arrays, optional = model.checked(batch)
    planned = model.plan("train", *arrays["inputs"].shape, optional=optional, gradient_rows=False)
    planned.fill(arrays)
    fingerprint = _core.Fingerprint()
    planned.executor.observe(wrap(fingerprint) if wrap else fingerprint)
    planned.executor.run(seed=5)
    planned.executor.observe(None)
    return lines_of(fingerprint)
