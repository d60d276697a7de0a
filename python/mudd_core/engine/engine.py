"""The engine of a training run: planned graphs, the one-call step, evaluation, state to save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import _core
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint import StatePart, whole_parts, whole_tensors
from mudd_core.checkpoint.stored import StoredTensor
from mudd_core.config import Config
from mudd_core.engine import expert_load
from mudd_core.engine.accuracy import step_accuracy
from mudd_core.engine.batch_part import BATCH_SUM
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.optimizer_groups import assign_scales, optimizer_groups
from mudd_core.engine.state import EngineState, weight_parts
from mudd_core.engine.training_graphs import TrainingGraphs
from mudd_core.engine.weight_norms import Squares, squares_of

if TYPE_CHECKING:
    from mudd_core.data.rows import Rows
    from mudd_core.engine.model import Model


class Engine:
    """Trains a model on batches of a batcher (or on given ones).

    config: the whole run's config. batcher: the rows of training (data.pipelines.Rows); None if each step brings its
    batch. parts: the inputs beside inputs and targets that the batcher will have, where there is none yet.
    """

    def __init__(
        self, config: Config, model: Model, batcher: Rows | None = None, parts: tuple[str, ...] = ()
    ) -> None:
        self.config, self.model, self.batcher = config, model, batcher
        self._parts: tuple[str, ...] = tuple(batcher.parts) if batcher is not None else parts
        self._graphs = TrainingGraphs(config, model)
        self.model.evaluated_at_once = self._graphs.on_every_rank  # ranks may run it together
        self.groups = optimizer_groups(model.store, config.optim)
        assign_scales(model.store, config, self.groups)
        self._planned = self._graphs.plan(self._parts)
        self._step = self._graphs.step(self._planned, self.groups)
        self._given: Mapping[str, Array] | None = None  # the batch of the last step, if not the batcher's
        self._steps: dict[tuple[str, ...], _core.TrainStep] = {self._parts: self._step}
        self._aux_loss = 0.0
        self._accuracy: dict[str, float] = {}
        self._load = expert_load.for_model(model.config, config.train.batch_size * config.train.seq_len)
        self._state = EngineState(model.store, self._step.moment_planes, self._load)

    @property
    def in_use(self) -> InUse:
        """The model's: a step writes its weights."""
        return self.model.in_use

    @alone
    def train_step(
        self,
        step: int,
        lr: float,
        batch: Mapping[str, Array] | None = None,
        limits: tuple[float, float] | None = None,
        flags: int = 0,
        settle: bool = True,
    ) -> _core.StepReport:
        """Update at learning rate lr on the batcher's batch number `step` (from 0).

        batch: taken instead, [train.batch_size, train.seq_len] each (see Model.loss_and_gradients). limits: the largest
        loss and gradient norm that an update is made for. flags: bits; the report has those that any rank gave.
        settle: wait for the weights of other nodes; False where another step follows, which waits for each one as it
        reads it.
        """
        size, updates = self.config.train.batch_size, self.updates
        self._given = None
        if batch is None and (source := self._rows.core) is not None:
            taken = self._step_with(tuple(self._rows.parts))
            report = taken.run(source, step=step, updates=updates, lr=lr, limits=limits, flags=flags)
        else:
            given = self._rows.arrays(step * size, size) if batch is None else self.model.adapt(batch)
            arrays, optional = self.model.checked(given)
            taken, self._given = self._step_with(optional), arrays
            report = taken.run_on(
                arrays, step=step, updates=updates, lr=lr, batch_size=size, limits=limits, flags=flags
            )
        if settle or taken is not self._step:
            taken.settle()
        if not report.stopped:
            sums = taken.metrics
            self._accuracy = step_accuracy(sums[-2:], report.weight_sum, size)
            if self._load is not None:
                self._load.add_step(step, sums[:-2])
                self._aux_loss = report.aux_loss
        if report.finite and not report.spike and not report.stopped:
            self._state.count_update()
        return report

    @property
    def _rows(self) -> Rows:
        if self.batcher is None:
            raise RuntimeError("[engine] batch: expected one for each step, as there is no batcher")
        return self.batcher

    def _step_with(self, parts: tuple[str, ...]) -> _core.TrainStep:
        """The step over graphs with these inputs beside inputs and targets."""
        if parts != self._parts:
            self.settle()  # another step's weights
        if parts not in self._steps:  # another graph over the same weights and moments
            planned = self._graphs.plan(parts)
            self._steps[parts] = self._graphs.step(planned, self.groups, self._step.moment_planes)
        return self._steps[parts]

    def settle(self) -> None:
        """Return when all weights of the last step are here; all ranks call it together."""
        for step in self._steps.values():
            step.settle()

    def release(self) -> None:
        """Return the memory of activations and gradients to the system; the next step takes it again."""
        self.executor.release()

    @property
    def updates(self) -> int:
        """Updates made so far; the skipped ones do not count."""
        return self._state.updates

    @property
    def exposed_seconds(self) -> float:
        """Seconds of the last step in which this rank only exchanged with other ranks, or waited for them.

        Not in it: gathers of cut weights and exchanges of experts' rows, which the graph waits for by itself.
        """
        return float(self._step.exposed_seconds)

    def metrics(self) -> JsonObject:
        """Metrics of the last step beside its loss: accuracy; loads, drops and alarms of a mixture of experts.

        accuracy: guessed over counted targets (Model.evaluate); SAMPLE_ACCURACY: see step_accuracy.
        """
        if self._load is None:
            return {**self._accuracy}
        return {**self._accuracy, "aux_loss": self._aux_loss, **self._load.row()}

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int]:
        """Summed nats, counted and guessed targets of a batch of inputs and targets int32 [B, T]."""
        return self.model.evaluate(batch)

    @alone
    def first_nonfinite(self, step: int) -> str:
        """Name of the first node with a non-finite number in the last step taken, `step`; runs it again, slowly.

        Of this rank's samples.
        """
        self.settle()
        given = self._given
        optional = self._rows.parts if given is None else [n for n in given if n not in ("inputs", "targets")]
        self.executor.release()  # two of them at once were never asked for
        graphs, planned = self._graphs, self._graphs.plan(tuple(optional), check_finite=True)
        found = ""
        for run in range(graphs.runs):
            row = graphs.first_row(run)
            first = step * self.config.train.batch_size + row
            if given is not None:
                planned.fill({name: array[row : row + graphs.samples] for name, array in given.items()})
            else:
                source = self._rows.core
                assert source is not None  # a step on rows of Python keeps its arrays
                _core.fill_inputs(source, planned.executor, first)
            planned.executor.run(run, seed=self.config.train.seed, step=step, first_sample=first)
            found = found or str(planned.executor.first_non_finite())
            if found and self.model.store.holds_all:
                break  # else the ranks gather weights for every run together
        return found or BATCH_SUM

    def last_batch(self, step: int) -> Mapping[str, Array]:
        """All arrays of the batch of the last step taken, `step`."""
        size = self.config.train.batch_size
        return self._rows.arrays(step * size, size) if self._given is None else self._given

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        """Views of what a checkpoint holds (see EngineState). writable: to read one into; load_state must follow.

        All ranks call it together.
        """
        self.settle()
        return self._state.parts(writable=writable)

    def weight_squares(self) -> Squares:
        """Squares of the weights that this rank holds, summed by blocks."""
        return squares_of(weight_parts(self.model.store, self.model.store.names()))

    def first_parts(self, weights: Mapping[str, StoredTensor]) -> list[StatePart]:
        """What the checkpoint of step 0 holds where the run starts from these weights; the model may be booked only.

        weights: by name, in the types of the store.
        """
        narrow = self.config.optim.moment_dtype == "bf16"  # its 16-bit words
        return self._state.parts_of(weights, np.uint16 if narrow else np.float32)

    @alone
    def load_state(self, parts: Iterable[StatePart]) -> None:
        """Take over parts that cover what state_parts gives, and repack."""
        self._state.load(parts)

    def state_tensors(self, *, writable: bool = False) -> dict[str, Array]:
        """The parts by name, where each is a whole tensor: in a run of one process."""
        return whole_tensors(self.state_parts(writable=writable))

    def load_state_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Take over what state_tensors gave."""
        self.load_state(whole_parts(tensors))

    @property
    def executor(self) -> _core.Executor:
        """The planned executor of a training run over the batcher's rows."""
        return self._planned.executor

    def flops_per_token(self, counted: float = 1.0) -> float:
        """Operations for one trained token (engine/flops.py), without the gradients that frozen weights save.

        counted: the share of targets that count, for which alone the head is computed. Call it before the first step.
        """
        shape = self.model.config
        computed, all_gradients, loss = self.executor.flops
        every = flops_per_token(shape, shape.vocab_size, self.config.train.seq_len)
        return every * float((computed - (1 - counted) * loss) / all_gradients)

    def gradient_bytes(self, *, gradient_rows: bool) -> int:
        """Bytes of gradients in a training step that keeps those of tables by rows, or whole; for a plan."""
        return self._graphs.gradient_bytes(gradient_rows=gradient_rows)

    def packed_bytes(self, samples: int) -> int:
        """Bytes of packed copies of a node where another rank runs so many samples at once; for a plan."""
        return self._graphs.packed_bytes(samples)

    def expert_report(self) -> dict[str, int]:
        """Bytes of this rank's own experts in memory_report, by kind: weights, moments, packed."""
        return dict(self.model.store.expert_bytes(self._step.moment_planes))

    def limit_experts(self, spare: int) -> None:
        """Let the rows of this rank's experts take at most `spare` bytes more than planned; UserError in a step else.

        Without this call they may take all of their addresses.
        """
        unplanned = self.executor.arena_bytes - self.executor.likely_bytes
        if self.model.experts is not None and unplanned > 0:
            self.model.experts.set_spare(min(1.0, max(0, spare) / unplanned))

    def memory_report(self) -> dict[str, int]:
        """Bytes by kind: weights, moments, gradients, packed copies, weights mapped or gathered, arena."""
        store, executor = self.model.store, self._planned.executor
        return {
            "weights": store.plane_bytes,
            "moments": store.state_bytes,
            "gradients": executor.gradient_bytes,
            "packed": store.packed_bytes,
            **({"mapped": mapped} if (mapped := store.mapped_bytes) else {}),
            **({"gathered": executor.weight_bytes} if executor.weight_bytes else {}),
            "arena": executor.likely_bytes + self._step.scratch_bytes,
        }
