"""Statistics of a MUDDFormer's forward pass on a batch: log.weights with log.style=maxtext.

They are taken from a separate forward pass before the update, with the update's weights and batch. The training graph
keeps no value until the end of a step, and it runs once a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.config import MUDDFormerConfig
from mudd_core.engine.batch_check import OPTIONAL
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, muddformer
from mudd_core.models.dense_connections import captured_weights

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Array = npt.NDArray[np.floating]
Moments = dict[str, float]  # count, mean, squares (of deviations from the mean), max, min; all JSON can hold
Found = dict[str, Moments]  # by the place of the values: KIND/LAYER
_WEIGHTS, _OUTPUT = "dyn_dense_w", "layer_output"
_CAPTURED = ("blocks.*.mix.dynamic_weights", "blocks.*.out")


class MuddformerStatistics:
    """Reads the weights of every mixture and the output of every block, in a separate graph over the same weights."""

    def __init__(self, model: Model, length: int, arrays: Collection[str]) -> None:
        """length: tokens of a sequence. arrays: names of those in a batch."""
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

    def read(self, batch: Mapping[str, Array]) -> Found:
        """The moments of all values of a batch of [B, T] arrays, a sequence at a time."""
        rows = (
            self._read({name: batch[name][row : row + 1] for name in self._inputs})
            for row in range(len(batch["inputs"]))
        )
        return merged(rows)

    def _read(self, row: Mapping[str, Array]) -> Found:
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
    """The moments of all parts together, added in their order."""
    found: Found = {}
    for part in parts:
        for place, moments in part.items():
            found[place] = _both(found[place], moments) if place in found else moments
    return found


def tags_of(found: Found) -> dict[str, float]:
    """The statistics by the tags of MUDDFormer's program."""
    tags: dict[str, float] = {}
    for place, one in found.items():
        kind, layer = place.split("/")
        values = {"norm": math.sqrt(one["squares"] + one["count"] * one["mean"] ** 2)}
        if kind == _WEIGHTS:
            values |= {name: one[name] for name in ("max", "mean", "min")}
            values["std"] = math.sqrt(one["squares"] / one["count"])
        tags |= {f"mudd/{kind}/{name}/layer_{layer}": value for name, value in values.items()}
    return tags


def _moments(value: Array) -> Moments:
    mean = float(value.mean())
    squares = float(np.square(value - mean).sum())
    extremes = {"max": float(value.max()), "min": float(value.min())}
    return {"count": float(value.size), "mean": mean, "squares": squares, **extremes}


def _power(value: Array) -> Moments:
    """The moments about zero of values whose norm alone is asked for."""
    flat = value.reshape(-1)
    squares = float(np.dot(flat, flat))
    return {"count": float(flat.size), "mean": 0.0, "squares": squares, "max": 0.0, "min": 0.0}


def _both(one: Moments, other: Moments) -> Moments:
    """The moments of the values of both (Chan et al. 1979)."""
    count, apart = one["count"] + other["count"], other["mean"] - one["mean"]
    return {
        "count": count,
        "mean": one["mean"] + apart * other["count"] / count,
        "squares": one["squares"] + other["squares"] + apart**2 * one["count"] * other["count"] / count,
        "max": max(one["max"], other["max"]),
        "min": min(one["min"], other["min"]),
    }
