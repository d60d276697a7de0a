"""Measure, on text, the weights with which each block of a MUDDFormer reads the earlier states.

In stream c, the mixture after block n multiplies state j (0: embedding, j: output of block j - 1) by
A[c, j] = a[c, j] + z[t, c, j]. Here a is learned and constant, and z is computed from token t (Xiao et al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config import MUDDFormerConfig
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, muddformer
from mudd_core.models.dense_connections import captured_weights

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


@dataclass(frozen=True)
class Weights:
    """The constant part a, and the mean and standard deviation of the dynamic part z, all [L, C, L + 1].

    The text has `tokens` tokens. names: one letter for each stream. Weights that a mixture does not have are NaN. The
    last block has one stream, stored at the last index.
    """

    names: str
    static: Array
    mean: Array
    std: Array
    tokens: int


def measured_weights(model: Model, batches: Iterable[Mapping[str, Array] | Array]) -> Weights:
    """Measure the weights of a MUDDFormer on the text of batches; raise UserError for other families.

    A batch is ids [B, T] without padding, or has `inputs` [B, T] and optionally `targets`, `key_mask` or `segments`,
    which mark padding to ignore.
    """
    config = model.config
    if not isinstance(config, MUDDFormerConfig) or config.mix == "none":
        raise UserError("[weights] model: expected a MUDDFormer with mixtures of earlier states")
    names, layers = config.streams, config.n_layer
    shape = (layers, len(names), layers + 1)
    static, total, squares = (np.full(shape, np.nan) for _ in range(3))
    tokens = 0
    for layer in range(layers):
        if config.sources(layer):
            place = _place(config, layer)
            static[place] = model.parameters[f"blocks.{layer}.mix.bias"]
            total[place] = squares[place] = 0.0
    for given in batches:
        batch = {"inputs": given} if isinstance(given, np.ndarray) else given
        text = _is_text(batch)
        tokens += int(text.sum())
        for layer, made in dynamic_weights(model, config, batch["inputs"]).items():
            place = _place(config, layer)
            z = made[text].reshape(-1, *static[place].shape).astype(np.float64)
            total[place] += z.sum(0)
            squares[place] += (z * z).sum(0)
    if not tokens:
        raise UserError("[weights] text: expected at least one validation sequence, got none")
    mean = total / tokens
    return Weights(names, static, mean, np.sqrt(np.maximum(squares / tokens - mean**2, 0.0)), tokens)


def dynamic_weights(model: Model, config: MUDDFormerConfig, ids: Array) -> dict[int, Array]:
    """Return the dynamic weights [B, T, C l] of every mixture on ids [B, T] by layer; empty for a static model."""
    if config.mix != "dynamic":
        return {}
    recorder = Recorder(
        model.store, training=False, samples=len(ids), shards=1, capture=["*.dynamic_weights"]
    )
    with running(recorder):
        hidden = muddformer.model(config, Batch(recorder.input("inputs", ids.shape)), None)
    watched = captured_weights(config, recorder.sown)
    numbers = [value.number for value in watched.values()]
    executor = _core.Executor(
        recorder.graph, model.store, losses=[], keep=[*numbers, recorded(hidden.h).number]
    )
    executor.set("inputs", np.ascontiguousarray(ids, np.int32))
    executor.run()
    return {layer: np.array(executor.get(value.number)) for layer, value in watched.items()}


def _is_text(batch: Mapping[str, Array]) -> Array:
    """Return a mask [B, T] of the positions with text, from the most direct mark of padding that the batch has."""
    for part in ("key_mask", "segments"):
        if part in batch:
            marked: Array = batch[part] != 0
            return marked
    counted: Array = batch.get("targets", batch["inputs"]) >= 0
    return counted


def _place(config: MUDDFormerConfig, layer: int) -> tuple[Array, ...]:
    streams = [len(config.streams) - 1] if config.mixtures(layer) == 1 else list(range(len(config.streams)))
    return np.ix_([layer], streams, config.sources(layer))
