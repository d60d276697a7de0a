"""The use of a TokenFormer's parameter tokens (slots) on text: each slot's fraction of the activated scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import ops
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, Float64
from mudd_core.config import TokenFormerConfig

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

# The projections of a block that have slots: name, group of config fields, name of the input.
PROJECTIONS = (
    ("q", "qkv", "attn.in"),
    ("k", "qkv", "attn.in"),
    ("v", "qkv", "attn.in"),
    ("o", "proj", "attn.heads"),
    ("ffn", "ffn", "ffn.in"),
)
_UNITS = 1024  # value tokens per call: with unit vectors as values, the outputs are the scores


@dataclass(frozen=True)
class SlotUse:
    """The use of the slots in one projection.

    mass: [L, n], the sum of |S| over tokens for each slot, normalized over slots.

    S: the activated scores (docs/maths/tokenformer.md, 1.2). A layer whose scores are all zero is NaN.
    """

    name: str
    mass: Float64

    def effective(self) -> Float64:
        """Return exp(entropy of the mass) / number of slots, [L]: 1 if all slots are used equally."""
        logs = np.log(np.where(self.mass > 0, self.mass, 1.0))
        made: Float64 = np.exp(-(self.mass * logs).sum(1)) / self.mass.shape[1]
        return made

    def unused(self, below: float) -> Float64:
        """Return the fraction of slots, [L], whose mass is less than `below` times the mean."""
        made: Float64 = (self.mass * self.mass.shape[1] < below).mean(1)
        return made


def slot_use(model: Model, ids: Array) -> list[SlotUse]:
    """Measure the use of the slots of each projection on ids [B, T]; raise UserError for a model without slots."""
    config = model.config
    if not isinstance(config, TokenFormerConfig) or config.block == "dense":
        raise UserError("[slots] model: expected a TokenFormer with slots")
    inputs = model.capture(ids, [f"*.{place}" for place in dict.fromkeys(one[2] for one in PROJECTIONS)])
    found = []
    for name, group, place in PROJECTIONS:
        part = "ffn" if name == "ffn" else f"attn.{name}"
        sums = np.zeros((config.n_layer, config.slots(group)))
        for layer in range(config.n_layer):
            x = inputs[f"blocks.{layer}.{place}"]
            for first, scores in _scores(model, config, group, f"blocks.{layer}.{part}", x):
                size = scores.shape[-1]
                sums[layer, first : first + size] = np.abs(scores).reshape(-1, size).sum(0, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            found.append(SlotUse(name, sums / sums.sum(1, keepdims=True)))
    return found


def _scores(
    model: Model, config: TokenFormerConfig, group: str, place: str, x: Array
) -> Iterator[tuple[int, Array]]:
    """Yield parts of the slots: the first slot, and the activated scores [B, T, up to _UNITS] for x."""
    key = model.parameters[f"{place}.key"]
    bias = model.parameters.get(f"{place}.key_bias")
    n = len(key)
    for first in range(0, n, _UNITS):
        units = np.eye(n, min(_UNITS, n - first), -first, dtype=np.float32)
        scores = ops.pattention(
            x,
            key,
            units,
            bias,
            norm=config.normalize_type,
            gelu=f"gelu_{config.gelu}",
            eps=config.score_eps(),
            zoom=float(config.zoom_dim * (4 if group == "ffn" else 1)),
            scale_factor=getattr(config, f"{group}_scale_factor"),
        )
        yield first, np.asarray(scores)
