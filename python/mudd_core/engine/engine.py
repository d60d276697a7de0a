"""The engine of a training run: planned graphs, a training step in one call, evaluation, and the state to save."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import _core
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint import StatePart, whole_parts, whole_tensors
from mudd_core.checkpoint.stored import StoredTensor
from mudd_core.config import Config
from mudd_core.config.average import averaging_of
from mudd_core.data.rows import NLL, REFERENCE
from mudd_core.engine import expert_load
from mudd_core.engine.batch_part import BATCH_SUM
from mudd_core.engine.evaluation_sums import EvaluationSums
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.last_metrics import LastMetrics
from mudd_core.engine.optimizer_groups import assign_scales, optimizer_groups
from mudd_core.engine.state import EngineState, weight_parts
from mudd_core.engine.teaching import has_teacher
from mudd_core.engine.training_graphs import TrainingGraphs
from mudd_core.engine.training_steps import TrainingSteps
from mudd_core.engine.weight_average import WeightAverage
from mudd_core.engine.weight_norms import Squares, squares_of

if TYPE_CHECKING:
    from mudd_core.data.rows import Rows
    from mudd_core.engine.model import Model


class Engine:
    """Trains a model on the batches of a batcher, or on batches that the caller passes.

    config: the config of the run. batcher: the training sequences (data.rows.Rows); None if each step passes its batch.
    parts: the optional arrays of the batches, if there is no batcher yet.
    """

    def __init__(
        self, config: Config, model: Model, batcher: Rows | None = None, parts: tuple[str, ...] = ()
    ) -> None:
        self.config, self.model, self.batcher = config, model, batcher
        model.pairs = config.loss if config.loss.of_pairs else None
        model.regularized = config.loss if config.loss.is_regularized else None
        self._parts: tuple[str, ...] = tuple(batcher.parts) if batcher is not None else parts
        self._graphs = TrainingGraphs(config, model)
        self.model.evaluated_at_once = (
            self._graphs.on_every_rank
        )  # ranks may evaluate this many sequences together
        self.groups = optimizer_groups(model.store, config.optim)
        assign_scales(model.store, config, self.groups)
        self._steps = TrainingSteps(self._graphs, self.groups, self._parts)
        self._given: Mapping[str, Array] | None = None  # the batch of the last step, if the caller passed one
        self.step_seconds: dict[str, float] = {}  # of the last step by stage (LoopEngine.step_seconds)
        self._taken = self._steps.first  # the step that was taken last
        self._reader: _core.LiveBytes | None = None  # of an asynchronous save
        load = expert_load.for_model(model.config, config.train.batch_size * config.train.seq_len)
        self._metrics = LastMetrics(model, load, by_sample=self._graphs.by_sample)
        rule = averaging_of(config.train.average)
        self.average = None if rule is None else WeightAverage(rule, config.train.steps, self._steps.first)
        self._state = EngineState(model.store, self._steps.first.moment_planes, load, self.average)

    @property
    def in_use(self) -> InUse:
        """The lock of the model, because a step writes the weights."""
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
        done: int | None = None,
    ) -> _core.StepReport:
        """Take one step with learning rate lr on batch `step` (from 0) of the batcher.

        batch: arrays [train.batch_size, train.seq_len] to use instead of the batcher's (see Model.loss_and_gradients).
        limits: the largest accepted loss and gradient norm; above either, the update is skipped. flags: bits; the
        report has the bits of all ranks combined. settle: wait for the weights of other nodes; pass False if another
        step follows, which waits for each weight when it reads it. done: the steps before this one, from which
        train.average=last:N starts its mean; None: `step`.
        """
        size, reading = self.config.train.batch_size, 0.0
        self._given = None
        self.model.store.changes += 1
        mean = 0.0 if self.average is None else self.average.weight(step if done is None else done)
        if batch is None and (source := self._rows.core) is not None:
            taken = self._steps.over(tuple(self._rows.parts))
            report = taken.run(
                source, step=step, updates=self.updates, lr=lr, limits=limits, flags=flags, average=mean
            )
        else:
            begin = time.perf_counter()
            given = self._rows.arrays(step * size, size) if batch is None else self.model.adapt(batch)
            arrays, optional = self.model.checked(given)
            reading = time.perf_counter() - begin
            taken, self._given = self._steps.over(optional), arrays
            report = taken.run_on(
                arrays,
                step=step,
                updates=self.updates,
                lr=lr,
                batch_size=size,
                limits=limits,
                flags=flags,
                average=mean,
            )
        self._end(taken, reading, settle=settle or taken is not self._steps.first)
        if not report.stopped:
            self._metrics.add(step, report, taken.metrics, size, self._given or self._parts)
        if report.finite and not report.spike and not report.stopped:
            self._state.count_update()
            if self.average is not None:
                self.average.count(mean)
        return report

    def _end(self, taken: _core.TrainStep, reading: float, *, settle: bool) -> None:
        """Keep the step that was taken, and its seconds.

        reading: seconds in which its batch was read. settle: wait for the weights of other nodes.
        """
        seconds = taken.seconds
        seconds["data"] += reading
        if settle:
            begin = time.perf_counter()
            taken.settle()
            seconds["messages"] += time.perf_counter() - begin
        self.step_seconds, self._taken = seconds, taken

    @property
    def _rows(self) -> Rows:
        if self.batcher is None:
            raise RuntimeError("[engine] batch: expected one for each step, as there is no batcher")
        return self.batcher

    def observed(self, observer: _core.NodeObserver) -> AbstractContextManager[None]:
        """Show each value of the steps inside the block to an observer; all ranks enter and leave it together.

        These steps run in separate graphs and have the same bits as other steps.
        """
        return self._steps.observed(observer)

    def settle(self) -> None:
        """Wait until all weights of the last step have arrived; all ranks call it together."""
        self._steps.settle()

    def release(self) -> None:
        """Return the memory of activations and gradients to the system; the next step allocates it again."""
        self._steps.release()

    @property
    def updates(self) -> int:
        """The number of updates so far, without skipped ones."""
        return self._state.updates

    def metrics(self) -> JsonObject:
        """Return metrics of the last step besides its loss: accuracy, and loads, drops and alarms of experts.

        accuracy: guessed over counted targets (Model.evaluate); SAMPLE_ACCURACY: see step_accuracy. objective: the loss
        that is minimized, if label smoothing or a z-loss is added to the loss.
        """
        return self._metrics.row()

    def sample_sums(self) -> tuple[list[int], Array]:
        """Return the place in the batch of each sample that this rank has trained on in the last step, and their sums.

        The sums are float32 [n, 2]: nats and counted targets. Raise RuntimeError without data.mix.
        """
        if not self._graphs.by_sample:
            raise RuntimeError("[engine] sample_sums: expected a config with data.mix, got none")
        rows = self._graphs.own_rows()
        sums: Array = self._taken.samples.reshape(len(rows), -1)[:, 2:].copy()
        return rows, sums

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int] | EvaluationSums:
        """Return (summed loss in nats, targets, correct predictions) of a batch of inputs and targets int32 [B, T].

        With a teacher, and for pairs of answers, return the sums of Model.evaluate_all.
        """
        further = has_teacher(batch) or self.model.pairs is not None
        return self.model.evaluate_all(batch) if further else self.model.evaluate(batch)

    @alone
    def first_nonfinite(self, step: int) -> str:
        """Return the name of the first node with a non-finite value in step `step`, which must be the last step.

        The step runs again, slowly. Only the samples of this rank are checked.
        """
        self.settle()
        given = self._given
        given_apart = ("inputs", "targets", REFERENCE, NLL)  # a graph has these inputs without being asked
        optional = self._rows.parts if given is None else [n for n in given if n not in given_apart]
        self.release()  # the caller needs only one of the two graphs, so free the other
        graphs, planned = self._graphs, self._graphs.plan(tuple(optional), check_finite=True)
        found = ""
        for run in range(graphs.runs):
            row = graphs.first_row(run)
            first = step * self.config.train.batch_size + row
            if given is not None:
                planned.fill({name: array[row : row + graphs.samples] for name, array in given.items()})
            else:
                source = self._rows.core
                assert source is not None  # a step on arrays of the caller keeps references to them
                _core.fill_inputs(source, planned.executor, first)
            planned.executor.run(run, seed=self.config.train.seed, step=step, first_sample=first)
            found = found or str(planned.executor.first_non_finite())
            if found and self.model.store.holds_all:
                break  # with sharded weights, ranks must gather weights for every run together
        return found or BATCH_SUM

    def last_batch(self, step: int) -> Mapping[str, Array]:
        """Return all arrays of the batch of step `step`, which must be the last step."""
        size = self.config.train.batch_size
        return self._rows.arrays(step * size, size) if self._given is None else self._given

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        """Return views of the state in a checkpoint (see EngineState); all ranks call it together.

        writable: make the views writable, to read a checkpoint into them; load_state must follow.
        """
        self.settle()
        return self._state.parts(writable=writable)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averaged weights of train.average inside the block; all ranks enter and leave it together.

        Nothing may train or save inside. Raise RuntimeError without train.average.
        """
        if self.average is None:
            raise RuntimeError("[engine] averaged: expected a config with train.average, got none")
        self.settle()
        if self._reader is not None:  # ranks share weights, so all of them release their readers first
            self._reader.release()
            if self.model.comm is not None:
                self.model.comm.barrier()
        self.model.store.changes += 1
        try:
            with self.average.swapped(self.model.comm):
                yield
        finally:
            self.model.store.changes += 1

    def lend_state(self, reader: _core.LiveBytes) -> None:
        """Let `reader` read the live parts of state_parts from now until the next change, which releases it first."""
        self._reader = reader
        self.model.store.set_reader(reader)

    def weight_squares(self) -> Squares:
        """Return the squares of this rank's weights, summed by blocks."""
        return squares_of(weight_parts(self.model.store, self.model.store.names()))

    def first_parts(self, weights: Mapping[str, StoredTensor]) -> list[StatePart]:
        """Return the state of the checkpoint of step 0 for a run that starts from these weights.

        The model may be planned without memory. weights: by name, in the types of the store.
        """
        optim = self.config.optim
        # bf16 values are saved as uint16
        types = [
            np.uint16 if one == "bf16" else np.float32
            for one in (optim.moment_dtype, optim.second_moment_dtype)
        ]
        return self._state.parts_of(weights, types)

    @alone
    def load_state(self, parts: Iterable[StatePart]) -> None:
        """Load parts that cover all of state_parts, and repack the weights."""
        self._state.load(parts)
        if self.average is not None:
            self.average.loaded()

    def state_tensors(self, *, writable: bool = False) -> dict[str, Array]:
        """Return the parts by name. Use it only in a run of one process, in which each part is a whole tensor."""
        return whole_tensors(self.state_parts(writable=writable))

    def load_state_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Load the result of state_tensors."""
        self.load_state(whole_parts(tensors))

    @property
    def executor(self) -> _core.Executor:
        """The planned executor of a training graph over the batcher's sequences."""
        return self._steps.planned.executor

    def flops_per_token(self, counted: float = 1.0) -> float:
        """Return the FLOPs of one trained token (engine/flops.py), without the gradients of frozen weights.

        counted: the fraction of targets that are not ignored; the head is computed only for these. Call this before the
        first step.
        """
        shape = self.model.config
        computed, all_gradients, loss = self.executor.flops
        every = flops_per_token(shape, shape.vocab_size, self.config.train.seq_len)
        return every * float((computed - (1 - counted) * loss) / all_gradients)

    def gradient_bytes(self, *, gradient_rows: bool) -> int:
        """Return the bytes of gradients in a training step, with embedding gradients stored by rows or whole; for a
        plan.
        """
        return self._graphs.gradient_bytes(gradient_rows=gradient_rows)

    def packed_bytes(self, samples: int) -> int:
        """Return the bytes of a node's packed copies if another rank runs `samples` samples at once. Used in plans."""
        return self._graphs.packed_bytes(samples)

    def expert_report(self) -> dict[str, int]:
        """Return the bytes of this rank's experts in memory_report, by kind: weights, moments, packed."""
        return dict(self.model.store.expert_bytes(self._steps.first.moment_planes))

    def limit_experts(self, spare: int) -> None:
        """Limit the tokens of this rank's experts to `spare` bytes more than planned; a step raises UserError above
        that.

        Without this call the tokens may use all of their reserved addresses.
        """
        unplanned = self.executor.arena_bytes - self.executor.likely_bytes
        if self.model.experts is not None and unplanned > 0:
            self.model.experts.set_spare(min(1.0, max(0, spare) / unplanned))

    def memory_report(self) -> dict[str, int]:
        """Return the bytes by kind: weights, moments, gradients, packed copies, mapped or gathered weights, arena."""
        store, executor = self.model.store, self.executor
        return {
            "weights": store.plane_bytes,
            "moments": store.state_bytes,
            "gradients": executor.gradient_bytes,
            "packed": store.packed_bytes,
            **({"mapped": mapped} if (mapped := store.mapped_bytes) else {}),
            **({"gathered": executor.weight_bytes} if executor.weight_bytes else {}),
            "arena": executor.likely_bytes + self._steps.first.scratch_bytes,
        }
