"""log.style=maxtext for a MUDDFormer or a Transformer++: the lines and tags of MUDDFormer's MaxText program.

The statistics of log.weights need a separate forward pass before the update, with the same weights and batch: the
training graph keeps no activation until the end of a step, and it runs once for each micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.config import Config, MixtralConfig, MUDDFormerConfig, TransformerPPConfig, mixture_of
from mudd_core.config.families.heads import head_width, kv_heads
from mudd_core.engine.accuracy import SAMPLE_ACCURACY
from mudd_core.engine.batch_check import OPTIONAL
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, muddformer
from mudd_core.models.dense_connections import captured_weights
from mudd_core.programs.maxtext.keys_weights import weight_names
from mudd_core.programs.maxtext.style import MaxTextStyle, joined
from mudd_core.run.records.events import BatchSums, StepRecord, Validation
from mudd_core.run.report.style import ForwardSums, RunFacts

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Floats = npt.NDArray[np.floating]
Moments = dict[
    str, float
]  # count, mean, squares (of deviations from the mean), max, min; all are finite in JSON
Found = dict[str, Moments]  # moments by KIND/LAYER
_WEIGHTS, _OUTPUT = "dyn_dense_w", "layer_output"
_CAPTURED = ("blocks.*.mix.dynamic_weights", "blocks.*.out")


class MuddformerStatistics:
    """A separate forward graph over the same weights that captures the weights of mixtures and outputs of blocks."""

    def __init__(self, model: Model, length: int, arrays: Collection[str]) -> None:
        """Build the graph. length: tokens of a sequence. arrays: names of the arrays in a batch."""
        self._model, self._inputs = model, ("inputs", *(name for name in OPTIONAL if name in arrays))
        config = model.config
        if not isinstance(config, MUDDFormerConfig):
            raise TypeError(f"[log] weights: expected a MUDDFormer, got a {config.family}")
        recorder = Recorder(model.store, training=False, samples=1, shards=1, capture=_CAPTURED)
        with running(recorder):
            inputs = {name: recorder.input(name, (1, length)) for name in self._inputs}
            hidden = muddformer.model(config, Batch.of(inputs), None)
        watched = captured_weights(config, recorder.sown)
        layers = range(config.n_layer)
        self._values = {f"{_WEIGHTS}/{layer:03d}": value.number for layer, value in watched.items()}
        self._values |= {
            f"{_OUTPUT}/{layer:03d}": recorder.sown[f"blocks.{layer}.out"].number for layer in layers
        }
        keep = sorted({*self._values.values(), recorded(hidden.h).number})
        self._executor = _core.Executor(recorder.graph, model.store, losses=[], keep=keep)

    def read(self, batch: Mapping[str, Floats]) -> Found:
        """Return the moments of all captured values for a batch of [B, T] arrays, one sequence at a time."""
        rows = (
            self._read({name: batch[name][row : row + 1] for name in self._inputs})
            for row in range(len(batch["inputs"]))
        )
        return merged(rows)

    def _read(self, row: Mapping[str, Floats]) -> Found:
        for name, array in row.items():
            self._executor.set(name, np.ascontiguousarray(array, np.int32))
        self._executor.run()
        return {place: self._moments(place, number) for place, number in self._values.items()}

    def _moments(self, place: str, number: int) -> Moments:
        value = np.array(self._executor.get(number), np.float64)
        kind, layer = place.split("/")
        if kind == _OUTPUT:
            return _power(value)
        constant = self._model.parameters[f"blocks.{int(layer)}.mix.bias"].reshape(-1)
        return _moments(value + constant)  # [1, T, C l] + [C l]


def merged(parts: Iterable[Found]) -> Found:
    """Merge the moments of all parts in their order."""
    found: Found = {}
    for part in parts:
        for place, moments in part.items():
            found[place] = _both(found[place], moments) if place in found else moments
    return found


def tags_of(found: Found) -> dict[str, float]:
    """Return the statistics under the tags that MUDDFormer's program writes."""
    tags: dict[str, float] = {}
    for place, one in found.items():
        kind, layer = place.split("/")
        values = {"norm": math.sqrt(one["squares"] + one["count"] * one["mean"] ** 2)}
        if kind == _WEIGHTS:
            values |= {name: one[name] for name in ("max", "mean", "min")}
            values["std"] = math.sqrt(one["squares"] / one["count"])
        tags |= {f"mudd/{kind}/{name}/layer_{layer}": value for name, value in values.items()}
    return tags


def _moments(value: Floats) -> Moments:
    mean = float(value.mean())
    squares = float(np.square(value - mean).sum())
    extremes = {"max": float(value.max()), "min": float(value.min())}
    return {"count": float(value.size), "mean": mean, "squares": squares, **extremes}


def _power(value: Floats) -> Moments:
    """Return moments about zero, for values of which only the norm is needed."""
    flat = value.reshape(-1)
    squares = float(np.dot(flat, flat))
    return {"count": float(flat.size), "mean": 0.0, "squares": squares, "max": 0.0, "min": 0.0}


def _both(one: Moments, other: Moments) -> Moments:
    """Merge two sets of moments (Chan et al. 1979)."""
    count, apart = one["count"] + other["count"], other["mean"] - one["mean"]
    return {
        "count": count,
        "mean": one["mean"] + apart * other["count"] / count,
        "squares": one["squares"] + other["squares"] + apart**2 * one["count"] * other["count"] / count,
        "max": max(one["max"], other["max"]),
        "min": min(one["min"], other["min"]),
    }


class MuddformerStyle(MaxTextStyle):
    """Lines at every update, tags at every fifth.

    In this program perf/step_time_seconds is the number of updates per second.
    """

    every = weights_every = statistics_every = 5

    @staticmethod
    def has_forward_statistics(config: Config) -> bool:
        """Return whether the model mixes the outputs of earlier layers."""
        return isinstance(config.model, MUDDFormerConfig) and config.model.mix != "none"

    @staticmethod
    def read_forward(model: Model, length: int, rows: Mapping[str, Array]) -> ForwardSums:
        """Return the moments of the mixing weights and of the outputs of the layers."""
        return MuddformerStatistics(model, length, rows).read(rows)

    @staticmethod
    def forward_tags(parts: Sequence[ForwardSums]) -> dict[str, float]:
        """Return the moments of all ranks as the tags of the program."""
        return tags_of(merged(parts))

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        self._names = weight_names(facts.config.model)

    def line(self, record: StepRecord) -> str:
        """Return the line of an update."""
        seconds = self.seconds(record)
        return (
            f"completed step: {record.step}, steps/s: {1 / seconds:.3f}, "
            f"TFLOP/s/device: {self.tflops() / seconds:.3f}, loss: {record.loss:.3f}, "
            f"aux_loss: {_aux_loss(record):.3f}, accuracy: {_accuracy(record):.4f}"
        )

    def tflops(self) -> float:
        """Return the TFLOPs of an update per rank, by the program's count if it has the family, else by mudd_core's."""
        config = self.facts.config
        if not isinstance(config.model, TransformerPPConfig | MUDDFormerConfig | MixtralConfig):
            return super().tflops()
        flops = program_flops(config.model, config.train.seq_len + 1)
        return flops * config.train.batch_size / 1e12 / self.facts.ranks

    def batch_validated(self, sums: BatchSums) -> list[str]:
        """Return the line of one batch of a validation."""
        counted = max(1, sums.targets)
        return [
            f"eval_step: {sums.number} loss: {sums.nats / counted:.4f} aux_loss: {0.0:.4f} "
            f"accuracy: {sums.guessed / counted:.4f} {' ' * 10}correct: {float(sums.guessed)} "
            f"weight: {float(sums.targets)} take: {sums.seconds:.3f}s"
        ]

    def validated(self, result: Validation) -> list[str]:
        """Return the lines of a validation."""
        loss, accuracy = result.val_loss, _eval_accuracy(result)
        return [
            f"average loss after step={result.step}, eval_loss={loss:.4f}, aux_loss={0.0:.4f}, "
            f"accuracy={accuracy:.4f},{' ' * 6}batch_eval_loss={result.batch_loss:.4f}, "
            f"batch_accuracy={result.batch_accuracy:.4f} total_weights={float(result.targets)}",
            f"Write step {result.step} eval loss: {loss:4f} accuracy: {accuracy:.4f} to tensorboard ",
        ]

    def tags(self, record: StepRecord) -> dict[str, float]:
        """Return the metrics of an update, all parameter norms and, with log.weights, the connection statistics."""
        seconds, norms = self.seconds(record), record.norms
        tags = {
            "learning/loss": record.loss,
            "learning/aux_loss": _aux_loss(record),
            "learning/accuracy": _accuracy(record),
            "learning/grad_norm": self.clipped(record),
            "learning/raw_grad_norm": record.grad_norm,
            "learning/param_norm": joined(norms),
            "learning/train_batch_weights": float(record.targets),
        }
        tags |= {f"total_params/{self._name(name)}": norm for name, norm in norms.items()}
        if self.facts.config.log.weights:
            tags |= record.forward
        return tags | {
            "perf/step_time_seconds": 1 / seconds,
            "perf/per_device_tflops": self.tflops(),
            "perf/per_device_tflops_per_sec": self.tflops() / seconds,
            "learning/current_learning_rate": record.lr,
        }

    def eval_scalars(self, result: Validation) -> dict[str, float]:
        """Return the tags of a validation."""
        return {
            "learning/eval_loss": result.val_loss,
            "learning/eval_accuracy": _eval_accuracy(result),
            "learning/batch_eval_loss": result.batch_loss,
            "learning/batch_eval_accuracy": result.batch_accuracy,
        }

    def _name(self, ours: str) -> str:
        """Return the program's path of a parameter, or mudd_core's name if the program lacks the parameter."""
        return self._names.get(ours, ours.replace(".", "/"))


def program_flops(model: TransformerPPConfig | MUDDFormerConfig | MixtralConfig, length: int) -> float:
    """Return the program's FLOP count for training on one sequence of `length` tokens.

    It uses the mean inner width for every layer and all keys for every query, and ignores the connections.
    """
    width, heads, inner = model.d_model, model.n_head * head_width(model), 3 * model.d_model * model.d_ff
    keys, mixture = kv_heads(model) * head_width(model), mixture_of(model)
    if mixture is not None:
        inner = mixture.top_k * inner + width * mixture.n_expert
    layer = 2 * (inner + width * (heads + 2 * keys) + heads * width) + 4 * length * heads
    return 3.0 * length * (model.n_layer * layer + 2 * width * model.vocab_size)


def _aux_loss(record: StepRecord) -> float:
    return record.metric("aux_loss", 0.0)


def _accuracy(record: StepRecord) -> float:
    """Return the accuracy of each sequence, averaged over sequences."""
    return record.metric(SAMPLE_ACCURACY, math.nan)


def _eval_accuracy(result: Validation) -> float:
    return math.nan if result.val_accuracy is None else result.val_accuracy
