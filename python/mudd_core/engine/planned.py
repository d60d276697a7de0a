"""A graph of a model, recorded and planned for one shape of ids, with its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config import LossConfig, ModelConfig
from mudd_core.engine.pairs import pair_parts
from mudd_core.engine.teaching import Teaching, has_teacher, input_shape
from mudd_core.graph.recording import Like, Recorder, recorded, running
from mudd_core.models import Batch, model_function
from mudd_core.models.ngrams import TABLE


class ExecutorOptions(TypedDict, total=False):
    """Options of _core.Executor."""

    runs_per_step: int
    reuse: bool
    recompute: bool
    shift: int
    poison: bool
    check_finite: bool
    gradient_rows: bool
    cut_gradients: bool
    gradients: _core.NodeGradients | None


class Planned:
    """A planned graph for one shape. Call fill(), then run(), then read the outputs."""

    def __init__(
        self,
        executor: _core.Executor,
        inputs: tuple[str, ...],
        outputs: tuple[int, ...],
        aux: int = -1,
        metrics: tuple[int, ...] = (),
        gradients: _core.NodeGradients | None = None,
        shape: tuple[int, int] = (0, 0),
    ) -> None:
        self.executor = executor
        self.shape = shape  # shape of the ids: sequences, length
        self.gradients = gradients  # memory of the gradients, if ranks share the batch
        self.inputs = inputs
        # Nodes of the logits; or of the loss, the count, the guessed targets and, with a teacher, the sums about it.
        # With pairs of answers: of the loss, the pairs, the ranked pairs with their margins, and the log-probabilities.
        # A training graph with label smoothing or a z-loss: of that loss, the count, the guessed targets, and the
        # cross-entropy.
        self.outputs = outputs
        self.aux, self.metrics = aux, metrics  # nodes of Hidden.aux; -1: none

    def fill(self, batch: Mapping[str, Array]) -> None:
        """Copy the arrays of a batch into the graph's inputs."""
        for name in self.inputs:
            self.executor.set(name, batch[name])

    def sums(self) -> tuple[float, float]:
        """Return (summed nats with auxiliary losses, counted targets) of the last run of a graph with a loss."""
        loss, count = (tree_sum(self.executor.get(number)) for number in self.outputs[:2])
        return loss + (tree_sum(self.executor.get(self.aux)) if self.aux >= 0 else 0.0), count


def declare_parameters(
    config: ModelConfig, store: _core.ParamStore, stored: Mapping[str, str] | None
) -> None:
    """Let a model declare its parameters in a store. stored: the 16-bit types of some parameters, by name.

    Raise KeyError for a name in `stored` that the model lacks, and UserError for fields of n-grams without effect.
    """
    recorder = Recorder(store, training=False, samples=1, shards=1, stored=stored)
    with running(recorder):
        model_function(config)(config, Batch(recorder.input("inputs", (1, 1))), None)
    if unknown := sorted(set(stored or ()) - set(store.names())):
        raise KeyError(f"[model] stored: there is no '{unknown[0]}'")
    if config.ngram_rows and config.ngram_end >= config.vocab_size:
        raise UserError(
            f"[model] ngram_end: expected an id below the vocabulary of {config.vocab_size}, or -1, got "
            f"{config.ngram_end}"
        )
    if config.ngram_rows and TABLE not in store.names():
        raise UserError(
            f"[model] ngram_rows: the model function of {config.family} does not use "
            "mudd_core.models.ngrams.NgramRows; add it or set model.ngram_rows=0"
        )


def plan_graph(
    config: ModelConfig,
    store: _core.ParamStore,
    mode: str,
    shape: tuple[int, int],
    shards: int,
    optional: tuple[str, ...],
    options: ExecutorOptions,
    teaching: Teaching | None = None,
    pairs: LossConfig | None = None,
    regularized: LossConfig | None = None,
    *,
    by_sample: bool = False,
) -> Planned:
    """Return the graph of a mode (train, evaluate, logits) for ids of `shape` [samples, length].

    config, store and teaching belong to the model. shards, optional, options: see Model.plan. pairs: the loss of pairs
    of answers; auxiliary losses are not added to it. regularized: the loss of a training graph with label smoothing or
    a z-loss; an evaluation measures the cross-entropy alone. by_sample: as in Hidden.loss.
    """
    recorder = Recorder(store, training=mode == "train", samples=shape[0], shards=shards)
    names = ("inputs", *optional) if mode == "logits" else ("inputs", "targets", *optional)
    inputs = {name: recorder.input(name, *input_shape(name, shape, teaching)) for name in names}
    taught = teaching.of_mode(mode).taught(inputs) if teaching and has_teacher(names) else None
    outputs: tuple[Like, ...]
    with running(recorder):
        hidden = model_function(config)(config, Batch.of(inputs), None)
        further = hidden.aux if mode != "logits" else None
        aux = -1
        if mode == "logits":
            outputs = (hidden.logits(),)
        elif pairs is not None:
            parts = pair_parts(pairs)
            names = (*names, *parts)
            given = {
                name: recorder.input(name, (shape[0], columns), "float32") for name, columns in parts.items()
            }
            outputs = hidden.pair_loss(inputs["targets"], pairs, {**inputs, **given})
        else:
            rule = regularized if mode == "train" else None
            outputs = hidden.loss(inputs["targets"], taught, rule, by_sample=by_sample)
            aux = recorded(further.loss(inputs["targets"])).number if further else -1
    numbers = tuple(recorded(value).number for value in outputs)
    metrics = tuple(recorded(value).number for value in further.metrics) if further else ()
    kept = [*numbers, *([aux] if aux >= 0 else []), *metrics]
    losses = [numbers[0], *([aux] if aux >= 0 else [])] if mode == "train" else []
    executor = _core.Executor(recorder.graph, store, losses=losses, keep=kept, **options)
    return Planned(executor, names, numbers, aux, metrics, options.get("gradients"), shape)


def tree_sum(values: Array) -> float:
    """Return the sum over shards by the balanced binary tree (contracts 2)."""
    return float(_core.tree_sum(values))
