"""A tiny engine with the interface of the real one and exact arithmetic, to test the training loop alone."""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from mudd_core import _core
from mudd_core.base.in_use import InUse
from mudd_core.checkpoint import StatePart, whole_parts
from mudd_core.config import Config
from mudd_core.engine.weight_norms import Squares, squares_of
from mudd_core.run.build.components import Components
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.machine import Peak
from mudd_core.run.store.checkpoints import Checkpoints


@dataclass
class Report:
    loss: float
    grad_norm: float
    finite: bool = True
    stopped: bool = False
    spike: bool = False
    spoilt: bool = False
    flags: int = 0
    weight_sum: float = 10.0


@dataclass
class FakeEngine:
    """A fake engine: w moves by lr times a gradient that depends on the step; m is a moment.

    bad: batches with a NaN loss. high: batches whose loss is a thousand times as high. bursting: batches whose update
    writes Inf.
    """

    seconds: float = 0.0
    bad: frozenset[int] = frozenset()
    high: frozenset[int] = frozenset()
    bursting: frozenset[int] = frozenset()
    batches: list[int] = field(default_factory=list)  # steps of the updates so far
    settled: list[int] = field(default_factory=list)  # batches after which all weights had to be on this rank
    before_step: Callable[[int], None] = lambda step: None
    w: Any = field(default_factory=lambda: np.full(5, 2.0, np.float32))
    m: Any = field(default_factory=lambda: np.zeros(5, np.float32))

    step_seconds: dict[str, float] = field(default_factory=dict)
    batcher: Any = None
    comm: Any = None
    average: Any = None

    def train_step(
        self,
        step: int,
        lr: float,
        batch: Any = None,
        limits: tuple[float, float] | None = None,
        flags: int = 0,
        settle: bool = True,
        done: int | None = None,
    ) -> Report:
        self.before_step(step)
        if settle:
            self.settled.append(step)
        if _core.stop_requested():
            return Report(0.0, 0.0, stopped=True)
        report = self._update(step, lr, limits)
        told = Ranks(self.comm).gathered(flags)
        report.flags = functools.reduce(operator.or_, told)
        return report

    def averaged(self) -> nullcontext[None]:
        return nullcontext()

    def settle(self) -> None:
        pass

    def release(self) -> None:
        pass

    def _update(self, step: int, lr: float, limits: tuple[float, float] | None) -> Report:
        time.sleep(self.seconds)
        if step in self.bad:
            return Report(float("nan"), float("inf"), finite=False)
        gradient = self.w + np.float32(np.sin(step))
        loss = float(np.square(gradient, dtype=np.float32).sum()) * (1000 if step in self.high else 1)
        norm = float(np.abs(gradient).max())
        if limits is not None and (loss > limits[0] or norm > limits[1]):
            return Report(loss, norm, spike=True)
        self.batches.append(step)
        self.m[:] = np.float32(0.9) * self.m + gradient
        self.w -= np.float32(lr) * self.m
        if step in self.bursting:
            self.w[0] = self.m[1] = np.inf
        return Report(loss, norm, spoilt=step in self.bursting)

    def evaluate(self, batch: Any) -> tuple[float, int, int]:
        return float(np.abs(self.w).sum()) * batch, 10 * batch, 3 * batch

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        return whole_parts({"w": self.w, "m/w": self.m})

    def lend_state(self, reader: _core.LiveBytes) -> None:
        pass

    def weight_squares(self) -> Squares:
        return squares_of(whole_parts({"w": self.w}))

    def metrics(self) -> dict[str, Any]:
        return {}

    def sample_sums(self) -> tuple[list[int], Any]:
        return [], np.zeros((0, 2), np.float32)

    def last_batch(self, step: int) -> dict[str, Any]:
        return {}

    def load_state(self, parts: Sequence[StatePart]) -> None:
        self.w[:], self.m[:] = (part.array for part in parts)

    def first_nonfinite(self, step: int) -> str:
        return "blocks.1.ffn.up"


def fake_assembly(
    engine: FakeEngine, **facts: Any
) -> Callable[[Config, Any, str | None, Ranks, Checkpoints | None], Components]:
    """Return a function for Trainer(assemble=...)."""

    def assemble(
        config: Config, model: Any, fingerprint: str | None, ranks: Ranks, checkpoints: Checkpoints | None
    ) -> Components:
        fake: Any = SimpleNamespace(
            parameters={"w": engine.w},
            config=SimpleNamespace(family="fake", vocab_size=2),
            in_use=InUse("model"),
            n_parameters=engine.w.size,
        )
        tokenizer: Any = object()
        batches: list[Any] = [1, 2, 3]
        return Components(
            model=model or fake,
            tokenizer=tokenizer,
            engine=engine,
            facts={"data": "fake", **facts},
            validated_slots=60,
            validated_tokens=60,
            bytes_per_target=2.0,
            flops_per_token=1e3,
            peak=Peak(lambda: 1e12),
            validation_batches=lambda: iter(batches),
        )

    return assemble
