"""What a model computes inside, as NumPy arrays by name: Model.capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import nn
from mudd_core.base.types import Array
from mudd_core.config import ModelConfig
from mudd_core.engine.value_names import LOGITS, chosen_values
from mudd_core.engine.watched import Patches, loss_and_count, watched
from mudd_core.graph.recording import taped
from mudd_core.graph.watching import Watcher
from mudd_core.models import Hidden

if TYPE_CHECKING:
    from mudd_core.engine.inside import Inside

# Config fields of random numbers that are drawn where gradients are wanted: a capture is an evaluation.
_RANDOM = ("embd_dropout", "attn_dropout", "resid_dropout", "drop_path", "jitter")


class Captured(dict[str, Array]):
    """Name to array of the values of one forward pass.

    loss: in nats, where there were targets. gradients: of that loss, by the names of values and of parameters.
    """

    def __init__(
        self, values: Mapping[str, Array], gradients: Mapping[str, Array], loss: float | None
    ) -> None:
        super().__init__(values)
        self.gradients, self.loss = dict(gradients), loss

    def __repr__(self) -> str:
        """One line for each array."""
        lines = [f"{name} {array.dtype}{list(array.shape)}" for name, array in self.items()]
        if self.loss is not None:
            lines.append(f"loss {self.loss:.6g} nats, {len(self.gradients)} gradients")
        return "\n".join(lines)


def captured(
    model: Inside, arrays: Mapping[str, Array], patterns: Sequence[str], patches: Patches, *, gradients: bool
) -> Captured:
    """The values that the patterns choose, for the int32 arrays [B, T] of a batch; with targets the loss too.

    gradients: also those of the loss by these values, and by the parameters that the patterns choose.
    """
    if gradients and "targets" not in arrays:
        raise ValueError(
            "[capture] targets: gradients need them: capture(ids[:, :-1], targets=ids[:, 1:], gradients=True)"
        )
    if gradients and patches:
        raise ValueError(
            "[capture] gradients: a patch is in force, and its functions have none; leave it first"
        )
    values = list(model.names())
    parameters = model.store.names() if gradients else []
    chosen = dict.fromkeys(chosen_values(list(patterns), [*values, *parameters], "[capture] names"))
    keep = [name for name in values if name in chosen]
    config = _without_noise(model.config) if gradients else model.config
    watcher = Watcher(model.store, keep, patches, gradients)
    loss: float | None = None
    found: dict[str, Array] = {}
    with watched(model, watcher, arrays, config=config) as hidden:
        if LOGITS in chosen and not (LOGITS in patches and "targets" in arrays):  # then the loss reads them
            nn.sow(LOGITS, hidden.logits())
        if "targets" in arrays:
            nats, count = loss_and_count(hidden, patches, arrays["targets"])
            denominator = model.denominator(count, arrays)
            loss = nats / denominator
            if gradients:
                scale = np.float32(1.0 / denominator)
                summed = _gradients(watcher, hidden, arrays["targets"])
                found = {name: summed[name] * scale for name in chosen if name in summed}
    return Captured({name: watcher.kept[name].data for name in keep}, found, loss)


def _gradients(watcher: Watcher, hidden: Hidden, targets: Array) -> dict[str, Array]:
    """Of the summed nats, the auxiliary ones included, by the names of kept values and of parameters."""
    aux = [taped(hidden.aux.loss(targets))] if hidden.aux else []
    found = watcher.gradients(taped(hidden.loss(targets)[0]), *(one for one in aux if one.recorded))
    if LOGITS in watcher.kept:
        found[LOGITS] = _of_logits(watcher.kept[LOGITS].data, targets)
    return found


def _without_noise(config: ModelConfig) -> ModelConfig:
    fields = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{name: 0.0 for name in _RANDOM if name in fields})


def _of_logits(logits: Array, targets: Array) -> Array:
    """The gradient of the summed nats by the logits [B, T, V]; the loss never stores these."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    rows, columns = np.nonzero(targets >= 0)
    p[rows, columns, targets[rows, columns]] -= 1
    made: Array = p * (targets >= 0)[..., None]
    return made
