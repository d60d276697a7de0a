"""The planned graphs of a model, and the losses and gradients that they compute.

The planned graphs must match the immediate executor bit for bit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Unpack

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.in_use import alone
from mudd_core.base.types import Array, Float32
from mudd_core.config import LossConfig, ModelConfig
from mudd_core.data.rows import TEACHER_PARTS
from mudd_core.engine.batch_check import OPTIONAL
from mudd_core.engine.evaluation import evaluated, piece_size
from mudd_core.engine.evaluation_sums import EvaluationSums
from mudd_core.engine.inside import ShownInside
from mudd_core.engine.planned import ExecutorOptions, Planned, plan_graph, tree_sum
from mudd_core.engine.teaching import Teaching, has_teacher
from mudd_core.graph import scopes, tape
from mudd_core.graph.recording import Immediate, running, taped
from mudd_core.models import Batch, model_function


class Losses(ShownInside):
    """The part of Model that plans its graphs and computes losses and gradients."""

    _plans: dict[tuple[Hashable, ...], Planned]
    teaching: Teaching | None  # the teacher of batches with TEACHER_PARTS
    _trained: tuple[str, ...]  # names of the parameters that train; empty: all

    @alone
    def plan(
        self,
        /,
        mode: str,
        samples: int,
        length: int,
        *,
        shards: int = 1,
        optional: tuple[str, ...] = (),
        by_sample: bool = False,
        **options: Unpack[ExecutorOptions],
    ) -> Planned:
        """Return the graph of a mode (train, evaluate, logits) for ids [samples, length]; it is planned once and
        cached.

        shards: logical shards of one run. by_sample: as in Hidden.loss. options: of the executor (runs_per_step, reuse,
        recompute, shift, poison, check_finite, gradient_rows).
        """
        trained = self._trained if mode == "train" else ()
        key = (
            mode,
            samples,
            length,
            shards,
            optional,
            by_sample,
            trained,
            self.teaching,
            self.pairs,
            self.regularized,
            tuple(sorted(options.items())),
        )
        if key not in self._plans:
            shape, losses = (samples, length), (self.teaching, self.pairs, self.regularized)
            self._plans[key] = plan_graph(
                self.config, self.store, mode, shape, shards, optional, options, *losses, by_sample=by_sample
            )
        return self._plans[key]

    @alone
    def drop_plans(self) -> None:
        """Free the planned graphs and their memory; the next call plans them again."""
        self._plans.clear()

    @alone
    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int]:
        """Return (summed loss in nats, number of targets, correct predictions) of int32 arrays [B, T], without checks.

        A prediction is correct if the target's logit is the largest; among equal logits, the first one is the largest.
        The batch is evaluated in pieces of at most `evaluated_at_once` sequences, which affects memory use but
        not the results.
        """
        if self.inside.is_patched:
            return self.inside.evaluate(batch)
        return self.evaluate_all(batch)[:3]

    @alone
    def evaluate_all(self, batch: Mapping[str, Array]) -> EvaluationSums:
        """Return the sums of `evaluate` and, if the batch has a teacher, the sums of the divergence and agreement.

        For a model of pairs of answers, return the summed loss, the pairs, the ranked pairs and the margins.
        """
        parts = (*OPTIONAL, *(TEACHER_PARTS if self.teaching else ()))
        optional = tuple(name for name in parts if name in batch)
        planned = self.plan_evaluation(*batch["inputs"].shape, optional=optional)
        return evaluated(planned, batch, of_pairs=self.pairs is not None)

    def plan_evaluation(self, rows: int, length: int, *, optional: tuple[str, ...] = ()) -> Planned:
        """Return the graph that evaluates batches of `rows` sequences."""
        size, shards = piece_size(self.config, rows, self.evaluated_at_once, of_pairs=self.pairs is not None)
        return self.plan("evaluate", size, length, shards=shards, optional=optional)

    @alone
    def loss(self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1) -> float:
        """Return the loss of a batch in nats, averaged over counted targets or all positions, by `normalize`.

        As in training, the loss includes the auxiliary losses of a mixture (evaluate does not). It never includes label
        smoothing or a z-loss.
        """
        arrays, optional = self.checked(self.adapt(batch))
        if self.inside.is_patched:
            loss, count = self.inside.loss(arrays, shards)
        else:
            planned = self.plan("evaluate", *arrays["inputs"].shape, shards=shards, optional=optional)
            planned.fill(arrays)
            planned.executor.run()
            loss, count = planned.sums()
        return loss / self.denominator(count, arrays)

    @alone
    def loss_and_gradients(
        self,
        /,
        batch: Mapping[str, npt.ArrayLike],
        *,
        shards: int = 1,
        **options: Unpack[ExecutorOptions],
    ) -> tuple[float, dict[str, Float32]]:
        """Return the loss in nats and its gradients for all trainable parameters; `normalize` sets the denominator.

        The loss is the one that training minimizes, with label smoothing and a z-loss if the run has them.
        batch: inputs and targets int32 [B, T] (negative targets are ignored), optional positions, segments, key_mask.
        options: options of the executor, for tests.
        """
        arrays, optional = self.checked(self.adapt(batch))
        planned = self.plan("train", *arrays["inputs"].shape, shards=shards, optional=optional, **options)
        planned.fill(arrays)
        planned.executor.run()
        trained = self._trained or self.store.names()
        # one gradient at a time is in memory
        gradients = ((name, planned.executor.gradient(name)) for name in trained)
        return self._divided(*planned.sums(), gradients, arrays)

    @alone
    def loss_and_gradients_immediate(
        self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1
    ) -> tuple[float, dict[str, Float32]]:
        """Return the result of loss_and_gradients from the immediate executor and its tape; the bits are equal."""
        arrays, _ = self.checked(self.adapt(batch))
        loss, count, found = sums_and_gradients(
            self.config,
            self.store,
            arrays,
            shards,
            self.precision,
            self.teaching,
            self.pairs,
            self.regularized,
        )
        trained = self._trained or self.store.names()
        # If the loss does not depend on a parameter, the gradient is zero, as in the planned graph.
        gradients = (
            (name, found[name] if name in found else np.zeros(self.store.describe(name)["shape"], np.float32))
            for name in trained
        )
        return self._divided(loss, count, gradients, arrays)

    def _divided(
        self, loss: float, count: float, gradients: Iterable[tuple[str, Array]], arrays: Mapping[str, Array]
    ) -> tuple[float, dict[str, Float32]]:
        denominator = self.denominator(count, arrays)
        scale = np.float32(1.0 / denominator)
        return loss / denominator, {name: gradient * scale for name, gradient in gradients}


def sums_and_gradients(
    config: ModelConfig,
    store: _core.ParamStore,
    arrays: Mapping[str, Array],
    shards: int,
    precision: str,
    teaching: Teaching | None = None,
    pairs: LossConfig | None = None,
    regularized: LossConfig | None = None,
) -> tuple[float, float, dict[str, Array]]:
    """Return (summed loss in nats, counted targets, gradients of that sum by name) of a checked batch.

    shards: logical shards of the sums. The sum includes auxiliary losses. pairs: the loss of pairs of answers.
    regularized: the loss with label smoothing or a z-loss.
    """
    scope = Immediate(store)
    cuts = scopes.shards(arrays["inputs"].shape[0], shards)
    taught = teaching.taught(arrays) if teaching and has_teacher(arrays) else None
    with running(scope), cuts, scopes.precision(precision):
        hidden = model_function(config)(config, Batch.of(arrays), None)
        targets = arrays["targets"]
        if pairs is not None:
            sums = hidden.pair_loss(targets, pairs, arrays)[:2]
        else:
            sums = hidden.loss(targets, taught, regularized)[:2]
        loss, count = (taped(one) for one in sums)
        aux = [taped(hidden.aux.loss(targets))] if hidden.aux and pairs is None else []
        tape.backward(
            loss, *(one for one in aux if one.recorded)
        )  # metrics of frozen routers are not recorded
    total = tree_sum(loss.data)
    for further in aux:
        total += tree_sum(further.data)
    gradients = {name: leaf.grad for name, leaf in scope.leaves.items() if leaf.grad is not None}
    return total, tree_sum(count.data), gradients
