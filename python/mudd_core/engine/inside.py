"""Access to the values inside a model by name: Model.inside, and the arrays that Model.capture returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mudd_core import nn
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array, Float32, Value32
from mudd_core.config import ModelConfig
from mudd_core.engine.bare_model import BareModel
from mudd_core.engine.planned import tree_sum
from mudd_core.engine.watched import (
    LOGITS,
    Patches,
    Patching,
    chosen_values,
    loss_and_count,
    patched_evaluation,
    patched_logits,
    patched_loss,
    patched_tokens,
    value_names,
    watched,
)
from mudd_core.graph.recording import taped
from mudd_core.graph.watching import Patch, Watcher
from mudd_core.models import Hidden

# Config fields that set random draws. These happen only when gradients are wanted, and a capture is an evaluation.
_RANDOM = ("embd_dropout", "attn_dropout", "resid_dropout", "drop_path", "jitter")


@dataclass
class InForce:
    """The names of a model's values, listed on first use, and the active patches, innermost last."""

    names: dict[str, str] = field(default_factory=dict)
    patches: list[Patches] = field(default_factory=list)


class Inside:
    """The values inside a model: their names, their arrays, and patches that replace them."""

    # A Model does not store this object, because it refers back to the Model: the cycle would delay freeing its memory.
    def __init__(self, model: BareModel, in_force: InForce) -> None:
        self._model, self._in_force = model, in_force

    @property
    def in_use(self) -> InUse:
        """The lock of the model."""
        return self._model.in_use

    def names(self) -> dict[str, str]:
        """The shape of each value for capture and patch by name, such as "[B, T, 64]", in the order of the model."""
        if not self._in_force.names:
            self._in_force.names = value_names(self._model.config)
        return dict(self._in_force.names)

    @alone
    def capture(
        self,
        tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        names: str | Sequence[str] = "*",
        *,
        targets: npt.ArrayLike | None = None,
        gradients: bool = False,
    ) -> Captured:
        """Return the values of a forward pass, as Model.capture does."""
        if targets is not None:
            given = tokens if isinstance(tokens, Mapping) else {"inputs": tokens}
            tokens = {**given, "targets": targets}
        arrays, _ = self._model.arrays_of(tokens)
        patterns = [names] if isinstance(names, str) else list(names)
        return captured(self._model, arrays, list(self.names()), patterns, self.patches, gradients=gradients)

    def patch(self, functions: Mapping[str, Patch]) -> Patching:
        """Replace values inside a `with` block, as Model.patch does."""
        return Patching(functions, list(self.names()), self._in_force.patches)

    # ---- what a model computes under its patches ------------------------------------------------------------

    @property
    def is_patched(self) -> bool:
        """True while a patch is active."""
        return bool(self._in_force.patches)

    @property
    def patches(self) -> dict[str, Patch]:
        """The active functions, by the names of the values that they replace."""
        return {name: function for patches in self._in_force.patches for name, function in patches.items()}

    def logits(self, arrays: Mapping[str, Array]) -> Array:
        """Return the logits [B, T, V] of the arrays of a batch."""
        return patched_logits(self._model, self.patches, arrays)

    def loss(self, arrays: Mapping[str, Array], shards: int) -> tuple[float, float]:
        """Return (summed nats with the auxiliary ones, counted targets) of a batch."""
        return patched_loss(self._model, self.patches, arrays, shards)

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int]:
        """Return summed nats, counted and guessed targets, as Model.evaluate does."""
        return patched_evaluation(self._model, self.patches, batch)

    def tokens(
        self, prompt: Array, count: int, sample: Callable[[Array, int], int], ring: int
    ) -> Iterator[int]:
        """Return up to `count` tokens after the prompt [T], each from the logits of all tokens before it."""
        return patched_tokens(self._model, self.patches, prompt, count, sample, ring)


class ShownInside(BareModel):
    """The part of Model that shows or replaces inner values; docs/inside.md describes the calls."""

    _in_force: InForce

    @property
    def inside(self) -> Inside:
        """Names, capture and patch of the values inside (docs/inside.md), and evaluation under patches."""
        return Inside(self, self._in_force)

    def names(self) -> dict[str, str]:
        """The shape of each value for capture and patch by name, such as "[B, T, 64]", in the order of the model."""
        return self.inside.names()

    @alone
    def capture(
        self,
        tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        names: str | Sequence[str] = "*",
        *,
        targets: npt.ArrayLike | None = None,
        gradients: bool = False,
    ) -> Captured:
        """Return the inner values, name to array, of a forward pass over ids [B, T] (or [T], as [1, T]) or a batch.

        names: patterns of names() (`*`, `?`, `[ab]`; `!` before a pattern excludes). Only these values are returned;
        values that no op stores are recomputed. targets [B, T]: the result has the `loss` of the batch, and with
        gradients=True also `gradients` of these values and of the parameters that match the patterns, frozen ones
        included. Dropout is off. Raise UserError with the nearest names for a pattern that matches nothing.
        """
        return self.inside.capture(tokens, names, targets=targets, gradients=gradients)

    def patch(self, functions: Mapping[str, Patch]) -> Patching:
        """Return a context manager in which functions replace values, by patterns of names().

        A function receives the array [B, T, ...] of a value and returns an array of the same shape. logits, loss,
        evaluate, generate (which then recomputes all tokens, without a cache) and capture use the new value. Training
        steps and loss_and_gradients do not. If several patches match a name, the innermost or last one applies.
        """
        return self.inside.patch(functions)


class Captured(dict[str, Value32]):
    """Values of one forward pass: name to array.

    loss: in nats, if targets were passed. gradients: of that loss, by the names of values and parameters.
    """

    def __init__(
        self, values: Mapping[str, Array], gradients: Mapping[str, Array], loss: float | None
    ) -> None:
        super().__init__(values)
        self.gradients: dict[str, Float32] = dict(gradients)
        self.loss = loss

    def __repr__(self) -> str:
        """Return one line for each array."""
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
    """Return the values that match the patterns, for the int32 arrays [B, T] of a batch; with targets also the loss.

    values: the names of all values. gradients: include the gradients of the loss with respect to these values and to
    the parameters that match the patterns.
    """
    if gradients and "targets" not in arrays:
        raise ValueError(
            "[capture] targets: gradients need them: capture(ids[:, :-1], targets=ids[:, 1:], gradients=True)"
        )
    if gradients and patches:
        raise ValueError(
            "[capture] gradients: a patch is active, and its functions have no gradients; leave the "
            "patch first"
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
    """Return (summed nats, counted targets, gradients of these nats by the names of stored values and parameters).

    Each value is read by the same ops as in training, because their number determines how often bf16 gradients are
    rounded.
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
    """Return the gradient of the summed nats with respect to the logits [B, T, V], which the loss op never stores."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    rows, columns = np.nonzero(targets >= 0)
    p[rows, columns, targets[rows, columns]] -= 1
    made: Array = p * (targets >= 0)[..., None]
    return made
