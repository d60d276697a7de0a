"""What a model computes inside, as NumPy arrays by name: Model.capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from mudd_core import nn
from mudd_core.base.types import Array
from mudd_core.config import ModelConfig
from mudd_core.engine.bare_model import BareModel
from mudd_core.engine.planned import tree_sum
from mudd_core.engine.value_names import LOGITS, chosen_values
from mudd_core.engine.watched import Patches, loss_and_count, watched
from mudd_core.graph.recording import taped
from mudd_core.graph.watching import Watcher
from mudd_core.models import Hidden

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
    model: BareModel,
    arrays: Mapping[str, Array],
    values: Sequence[str],
    patterns: Sequence[str],
    patches: Patches,
    *,
    gradients: bool,
) -> Captured:
    """The values that the patterns choose, for the int32 arrays [B, T] of a batch; with targets the loss too.

    values: the names of all values. gradients: also those of the loss by these values, and by the parameters that the
    patterns choose.
    """
    if gradients and "targets" not in arrays:
        raise ValueError(
            "[capture] targets: gradients need them: capture(ids[:, :-1], targets=ids[:, 1:], gradients=True)"
        )
    if gradients and patches:
        raise ValueError(
            "[capture] gradients: a patch is in force, and its functions have none; leave it first"
        )
    parameters = model.store.names() if gradients else []
    chosen = dict.fromkeys(chosen_values(list(patterns), [*values, *parameters], "[capture] names"))
    keep = [name for name in values if name in chosen]
    config = _without_noise(model.config) if gradients else model.config
    watcher = Watcher(model.store, keep, patches, gradients)
    with watched(model, watcher, arrays, config=config) as hidden:
        if gradients:
            summed, count, found = _backward(watcher, hidden, arrays["targets"], LOGITS in chosen)
        else:
            read_by_loss = LOGITS in patches and "targets" in arrays
            if LOGITS in chosen and not read_by_loss:
                nn.sow(LOGITS, hidden.logits())
            if "targets" not in arrays:
                return Captured(_arrays(watcher, keep), {}, None)
            summed, count = loss_and_count(hidden, patches, arrays["targets"])
            found = {}
    denominator = model.denominator(count, arrays)
    scale = np.float32(1.0 / denominator)
    means = {name: found[name] * scale for name in chosen if name in found}
    return Captured(_arrays(watcher, keep), means, summed / denominator)


def _arrays(watcher: Watcher, names: Sequence[str]) -> dict[str, Array]:
    return {name: watcher.kept[name].data for name in names}


def _backward(
    watcher: Watcher, hidden: Hidden, targets: Array, with_logits: bool
) -> tuple[float, float, dict[str, Array]]:
    """(summed nats, counted targets, gradients of these nats by the names of kept values and of parameters).

    Each value has the readers that it has in training: how often bf16 gradients are rounded depends on them.
    """
    nats, count, _ = (taped(one) for one in hidden.loss(targets))
    aux = [taped(hidden.aux.loss(targets))] if hidden.aux else []
    found = watcher.gradients(nats, *(one for one in aux if one.recorded))
    if with_logits:
        bias = None if hidden.bias is None else taped(hidden.bias).data
        logits = Hidden(taped(hidden.h).data, taped(hidden.head).data, bias=bias).logits()
        assert isinstance(logits, np.ndarray)
        nn.sow(LOGITS, logits)
        found[LOGITS] = _of_logits(logits, targets)
    return tree_sum(nats.data) + sum(tree_sum(one.data) for one in aux), tree_sum(count.data), found


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
