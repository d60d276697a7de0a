"""Statistics of what happens inside a MUDDFormer on one sequence: log.weights with log.style=maxtext."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.graph.recording import Recorder, running
from mudd_core.models import Batch, muddformer

Array = npt.NDArray[Any]


class Inside:
    """Reads the dynamic weights of every mixture and the output of every block; a graph of its own over the weights."""

    def __init__(self, model: Any, length: int) -> None:
        recorder = Recorder(model.store, training=False, samples=1, shards=1)
        recorder.sown = {}
        with running(recorder), muddformer.watching() as watched:
            hidden = muddformer.model(model.config, Batch(recorder.input("inputs", (1, length))), None)
        layers = range(model.config.n_layer)
        self._mixtures = {layer: value.number for layer, value in watched.items()}
        self._outputs = {layer: recorder.sown[f"blocks.{layer}.out"].number for layer in layers}
        keep = sorted({*self._mixtures.values(), *self._outputs.values(), hidden.h.number})
        self._executor = _core.Executor(recorder.graph, model.store, losses=[], keep=keep)

    def read(self, ids: Array) -> dict[str, float]:
        """Statistics by the names of the original; ids [1, T]."""
        self._executor.set("inputs", np.ascontiguousarray(ids, np.int32))
        self._executor.run()
        found: dict[str, float] = {}
        for layer, number in self._mixtures.items():
            weights = np.array(self._executor.get(number), np.float64)
            values = {
                "max": weights.max(), "mean": weights.mean(), "min": weights.min(), "std": weights.std(),
                "norm": np.linalg.norm(weights),
            }  # fmt: skip
            found |= {f"mudd/dyn_dense_w/{name}/layer_{layer:03d}": float(v) for name, v in values.items()}
        for layer, number in self._outputs.items():
            output = np.array(self._executor.get(number), np.float64)
            found[f"mudd/layer_output/norm/layer_{layer:03d}"] = float(np.linalg.norm(output))
        return found


def inside_of(model: Any, length: int) -> Inside | None:
    """The reader for a model; None for other families."""
    return Inside(model, length) if model.config.family == "muddformer" else None
