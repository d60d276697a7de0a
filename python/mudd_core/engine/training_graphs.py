"""The training graphs of a rank: the split of its part of a batch into graph runs, and the step over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, mixture_of
from mudd_core.config.mesh_fit import require_runs
from mudd_core.dist import Comm
from mudd_core.dist import alone as alone_rank
from mudd_core.engine.batch_part import BatchPart, cut_batch
from mudd_core.engine.frozen import choose_trained
from mudd_core.engine.optimizer_groups import ParameterGroup, core_groups
from mudd_core.engine.planned import ExecutorOptions, Planned
from mudd_core.graph.scopes import COMPUTE

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


class TrainingGraphs:
    """The training graphs of a model with the config of a run.

    part: the rank's samples of a batch. runs: the graph runs per step. samples: the sequences per run. on_every_rank:
    the smallest `samples` of all ranks. first: the sample at which the first run starts. stride: the samples from one
    run to the next (0: `samples`). by_sample: a step keeps the loss of each sample, for a mixture of sources.
    """

    def __init__(self, config: Config, model: Model) -> None:
        train = config.train
        self._config, self._model = config, model
        self.comm: Comm = model.comm or alone_rank()
        self.part = BatchPart.of(train.batch_size, train.shard_count(), self.comm.rank, self.comm.world)
        require_runs(config, self.comm.world)
        self.runs, self._shards = cut_batch(
            train.batch_size, train.shard_count(), train.micro_batch_size, self.part
        )
        self.samples = self.part.samples // self.runs
        last = BatchPart.of(train.batch_size, train.shard_count(), self.comm.world - 1, self.comm.world)
        self.on_every_rank = last.samples // self.runs
        self.by_sample = bool(config.data.mix)
        self._cut = model.cut is not None
        self.first, self.stride = self.part.first, 0
        if self._cut:  # gradients are summed over ranks after each graph run
            self.first, self.stride = self.part.by_runs(self.runs, self.comm.rank, self.comm.world)
        mixture = mixture_of(model.config)
        self._batch_aux = mixture is not None and mixture.aux_scope == "batch"
        if self.runs > 1 and self._batch_aux:
            raise UserError(
                "[config] model.aux_scope: batch averages over the whole batch, so "
                "train.micro_batch_size must be 0; set model.aux_scope=shard for micro-batches"
            )

    def plan(
        self, optional: tuple[str, ...] = (), *, check_finite: bool = False, whole_gradients: bool = False
    ) -> Planned:
        """Plan the graph with these optional inputs, in memory that the ranks of a node share.

        whole_gradients: store no gradient of a table by rows, for an observer.
        """
        train, store = self._config.train, self._model.store
        # A later engine of the model may have selected other parameters.
        self._model.train_only(choose_trained(self._model.store, self._config.trained))
        shared = self.comm.world > 1 and not check_finite
        store.share_packs(shared)
        options = ExecutorOptions(
            runs_per_step=self.runs,
            recompute=train.recompute,
            check_finite=check_finite or train.debug_nonfinite,
            gradients=_core.NodeGradients(self.comm.core) if shared else None,
        )
        if self._cut:
            options["cut_gradients"] = True
        if whole_gradients or (
            shared and self.comm.nodes > 1
        ):  # nodes exchange the gradients of whole tables
            options["gradient_rows"] = False
        planned = self._model.plan(
            "train",
            self.samples,
            train.seq_len,
            shards=self._shards,
            optional=optional,
            by_sample=self.by_sample,
            **options,
        )
        store.share_packs(False)
        return planned

    def step(
        self,
        planned: Planned,
        groups: list[ParameterGroup],
        earlier: _core.TrainStep | None = None,
    ) -> _core.TrainStep:
        """Return the core's step over a planned graph.

        groups: the optimizer's groups. earlier: another step, whose moments and average it shares.
        """
        optim, train = self._config.optim, self._config.train
        loss, count, *further = planned.outputs
        plain: dict[str, int] = {}
        if self._model.regularized is not None:  # the loss to compare is the cross-entropy, the last output
            plain, loss = {"objective": loss}, further.pop()
        return _core.TrainStep(
            planned.executor,
            loss,
            count,
            **plain,
            groups=core_groups(groups, self._config),
            eps=optim.eps,
            clip=optim.clip,
            normalize=self._config.loss.normalize,
            peak_lr=optim.lr,
            seed=train.seed,
            moment_planes=[] if earlier is None else earlier.moment_planes,
            average=bool(train.average),
            average_plane=-1 if earlier is None or not train.average else earlier.average_plane,
            aux=planned.aux,
            metrics=[*planned.metrics, *further[: 1 if self._config.loss.of_pairs else None]],
            gradients=planned.gradients,
            batch_sums=self.comm.world > 1 and self._batch_aux,
            first_sample=self.first,
            run_stride=self.stride,
            batch_size=train.batch_size,
            samples=planned.outputs[2] if self.by_sample else -1,
            wire=COMPUTE[self._config.mesh.wire],
        )

    def own_rows(self) -> list[int]:
        """Return the sample in the batch of each row of this rank, in the order of its graph runs."""
        firsts = [self.first_row(run) for run in range(self.runs)]
        return [first + row for first in firsts for row in range(self.samples)]

    def first_row(self, run: int) -> int:
        """Return the first sample of a graph run in the batch."""
        return self.first + run * (self.stride or self.samples)

    def gradient_bytes(self, *, gradient_rows: bool) -> int:
        """Return the bytes of gradients in a training step, with embedding gradients stored by rows or whole; for a
        plan.
        """
        planned = self._counted(self.samples, runs_per_step=self.runs, gradient_rows=gradient_rows)
        return int(planned.executor.gradient_bytes)

    def packed_bytes(self, samples: int) -> int:
        """Return the bytes of a node's packed copies if another rank runs `samples` samples at once. Used in plans.

        A graph with few rows keeps packed copies; a graph with many rows packs on use.
        """
        self._counted(samples)
        return int(self._model.store.packed_bytes)

    def _counted(self, samples: int, **options: Unpack[ExecutorOptions]) -> Planned:
        seq_len = self._config.train.seq_len
        return self._model.plan(
            "train", samples, seq_len, shards=self._shards, by_sample=self.by_sample, **options
        )
