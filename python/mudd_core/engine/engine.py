"""The engine of a training run: planned graphs, the one-call step, evaluation, state to save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.in_use import InUse, alone
from mudd_core.checkpoint import StatePart, whole_parts, whole_tensors
from mudd_core.dist import Comm
from mudd_core.dist import alone as alone_rank
from mudd_core.engine import expert_load
from mudd_core.engine.accuracy import step_accuracy
from mudd_core.engine.batch_part import BATCH_SUM, BatchPart, cut_batch
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.optimizer_groups import core_groups, optimizer_groups
from mudd_core.engine.rates import assign_scales
from mudd_core.engine.state import EngineState
from mudd_core.engine.trainable import choose_trained

Array = npt.NDArray[Any]


class Engine:
    """Trains a model on batches of a batcher (or on given ones).

    config: the whole run's config. batcher: the rows of training (data.pipelines.Rows); None if each step brings its
    batch. parts: the inputs beside inputs and targets that the batcher will have, where there is none yet.
    """

    def __init__(self, config: Any, model: Any, batcher: Any = None, parts: tuple[str, ...] = ()) -> None:
        self.config, self.model, self.batcher = config, model, batcher
        self._parts: tuple[str, ...] = tuple(batcher.parts) if batcher is not None else parts
        train = config.train
        self._comm: Comm = model.comm or alone_rank()
        self._part = BatchPart.of(train.batch_size, train.shard_count(), self._comm.rank, self._comm.world)
        if train.micro_batch_size > 0 and train.shard_count() % self._comm.world:
            raise UserError(
                f"[mesh] any_world: {self._comm.world} ranks need train.micro_batch_size=0, because the samples of one "
                "cannot be cut like those of another"
            )
        self.runs, self.shards_per_run = cut_batch(
            train.batch_size, train.shard_count(), train.micro_batch_size, self._part
        )
        self._samples = self._part.samples // self.runs
        self.model.evaluated_at_once = self._samples
        if self.runs > 1 and getattr(model.config, "aux_scope", "shard") == "batch":
            raise UserError(
                "[config] model.aux_scope: batch averages over the whole batch, so train.micro_batch_size must be 0; "
                "take aux_scope=shard for micro-batches"
            )
        self.groups = optimizer_groups(model.store, config.optim)
        assign_scales(model.store, config, self.groups)
        self._planned = self._plan(self._parts)
        self._step = self._train_step(self._planned)
        self._given: Mapping[str, Array] | None = None  # the batch of the last step, if not the batcher's
        self._steps: dict[tuple[str, ...], Any] = {self._parts: self._step}
        self._aux_loss = 0.0
        self._accuracy: dict[str, float] = {}
        self._load = expert_load.for_model(model.config, train.batch_size * train.seq_len)
        self._state = EngineState(model.store, self._step.moment_planes, self._load)

    @property
    def in_use(self) -> InUse:
        """The model's: a step writes its weights."""
        in_use: InUse = self.model.in_use
        return in_use

    def _plan(self, optional: tuple[str, ...] = (), check_finite: bool = False) -> Any:
        choose_trained(
            self.model, self.config.train.trainable
        )  # a later engine of the model may have chosen others
        shared = self._comm.world > 1 and not check_finite
        between_nodes = {"gradient_rows": False} if shared and self._comm.nodes > 1 else {}  # whole tables
        self.model.store.share_packs(shared)
        planned = self.model.plan(
            "train",
            self._samples,
            self.config.train.seq_len,
            shards=self.shards_per_run,
            optional=optional,
            runs_per_step=self.runs,
            recompute=self.config.train.recompute,
            check_finite=check_finite or self.config.train.debug_nonfinite,
            gradients=_core.NodeGradients(self._comm.core) if shared else None,
            **between_nodes,
        )

        self.model.store.share_packs(False)
        return planned

    def _train_step(self, planned: Any, moment_planes: list[int] | None = None) -> Any:
        optim = self.config.optim
        return _core.TrainStep(
            planned.executor,
            *planned.outputs[:2],
            groups=core_groups(self.groups, self.config),
            eps=optim.eps,
            clip=optim.clip,
            normalize=self.config.loss.normalize,
            peak_lr=optim.lr,
            seed=self.config.train.seed,
            moment_planes=moment_planes or [],
            aux=planned.aux,
            metrics=[*planned.metrics, planned.outputs[2]],
            gradients=planned.gradients,
            batch_sums=self._comm.world > 1 and getattr(self.model.config, "aux_scope", "shard") == "batch",
            first_sample=self._part.first,
            batch_size=self.config.train.batch_size,
        )

    @alone
    def train_step(
        self,
        step: int,
        lr: float,
        batch: Mapping[str, Array] | None = None,
        limits: tuple[float, float] | None = None,
        flags: int = 0,
        settle: bool = True,
    ) -> Any:
        """Update at learning rate lr on the batcher's batch number `step` (from 0).

        batch: taken instead, [train.batch_size, train.seq_len] each (see Model.loss_and_gradients). limits: the largest
        loss and gradient norm that an update is made for. flags: bits; the report has those that any rank gave.
        settle: wait for the weights of other nodes; False where another step follows, which waits for each one as it
        reads it.
        """
        where = {"step": step, "updates": self.updates, "lr": lr, "limits": limits, "flags": flags}
        self._given = None
        if batch is None and self.batcher.core is not None:
            taken = self._step_with(tuple(self.batcher.parts))
            report = taken.run(self.batcher.core, **where)
        else:
            size = self.config.train.batch_size
            given = self.batcher.arrays(step * size, size) if batch is None else self.model.adapt(batch)
            arrays, optional = self.model.checked(given)
            taken, self._given = self._step_with(optional), arrays
            report = taken.run_on(arrays, **where, batch_size=size)
        if settle or taken is not self._step:
            taken.settle()
        if not report.stopped:
            sums, sequences = taken.metrics, self.config.train.batch_size
            self._accuracy = step_accuracy(sums[-2:], report.weight_sum, sequences)
            if self._load is not None:
                self._load.take(step, sums[:-2])
                self._aux_loss = report.aux_loss
        if report.finite and not report.spike and not report.stopped:
            self._state.count_update()
        return report

    def _step_with(self, parts: tuple[str, ...]) -> Any:
        """The step over graphs with these inputs beside inputs and targets."""
        if parts != self._parts:
            self.settle()  # another step's weights
        if parts not in self._steps:  # another graph over the same weights and moments
            self._steps[parts] = self._train_step(self._plan(parts), self._step.moment_planes)
        return self._steps[parts]

    def settle(self) -> None:
        """Return when all weights of the last step are here; all ranks call it together."""
        for step in self._steps.values():
            step.settle()

    @property
    def updates(self) -> int:
        """Updates made so far; the skipped ones do not count."""
        return self._state.updates

    @property
    def exposed_seconds(self) -> float:
        """Of the last step on the batcher's rows: only exchanging with other ranks, or waiting for them."""
        return float(self._step.exposed_seconds)

    def metrics(self) -> dict[str, Any]:
        """Metrics of the last step beside its loss: accuracy; loads, drops and alarms of a mixture of experts.

        accuracy: guessed over counted targets (Model.evaluate); SAMPLE_ACCURACY: see step_accuracy.
        """
        of_experts = {} if self._load is None else {"aux_loss": self._aux_loss, **self._load.row()}
        return self._accuracy | of_experts

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int]:
        """Summed nats, counted and guessed targets of a batch of inputs and targets int32 [B, T]."""
        sums: tuple[float, int, int] = self.model.evaluate(batch)
        return sums

    @alone
    def first_nonfinite(self, step: int) -> str:
        """Name of the first node with a non-finite number in the last step taken, `step`; runs it again, slowly.

        Of this rank's samples.
        """
        self.settle()
        given = self._given
        optional = (
            self.batcher.parts if given is None else [n for n in given if n not in ("inputs", "targets")]
        )
        self.executor.release()  # two of them at once were never asked for
        planned = self._plan(tuple(optional), check_finite=True)
        for run in range(self.runs):
            row = self._part.first + run * self._samples
            first = step * self.config.train.batch_size + row
            if given is not None:
                planned.fill({name: array[row : row + self._samples] for name, array in given.items()})
            else:
                _core.fill_inputs(self.batcher.core, planned.executor, first)
            planned.executor.run(run, seed=self.config.train.seed, step=step, first_sample=first)
            if planned.executor.first_non_finite():
                return str(planned.executor.first_non_finite())
        return BATCH_SUM

    def last_batch(self, step: int) -> Mapping[str, Array]:
        """All arrays of the batch of the last step taken, `step`."""
        size = self.config.train.batch_size
        return self.batcher.arrays(step * size, size) if self._given is None else self._given

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        """Views of what a checkpoint holds (see EngineState). writable: to read one into; load_state must follow.

        All ranks call it together.
        """
        self.settle()
        return self._state.parts(writable=writable)

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
    def executor(self) -> Any:
        """The planned executor of a training run over the batcher's rows."""
        return self._planned.executor

    def flops_per_token(self) -> float:
        """Operations for one trained token (engine/flops.py), without the gradients that frozen weights save."""
        shape = self.model.config
        computed, all_gradients = self.executor.flops
        every = flops_per_token(shape, shape.vocab_size, self.config.train.seq_len)
        return every * float(computed / all_gradients)

    def gradient_bytes(self, *, gradient_rows: bool) -> int:
        """Bytes of gradients in a training step that keeps those of tables by rows, or whole; for a plan."""
        planned = self.model.plan(
            "train",
            self._samples,
            self.config.train.seq_len,
            shards=self.shards_per_run,
            runs_per_step=self.runs,
            gradient_rows=gradient_rows,
        )
        return int(planned.executor.gradient_bytes)

    def memory_report(self) -> dict[str, int]:
        """Bytes by kind: weights, moments, gradients, packed copies, arena."""
        store, executor = self.model.store, self._planned.executor
        return {
            "weights": store.plane_bytes,
            "moments": store.state_bytes,
            "gradients": executor.gradient_bytes,
            "packed": store.packed_bytes,
            "arena": executor.arena_bytes + self._step.scratch_bytes,
        }
