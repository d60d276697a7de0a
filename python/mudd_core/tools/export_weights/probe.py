"""Logits of probe ids, to compare an export with its run."""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Bool, Float32, Int64
from mudd_core.config import ModelConfig
from mudd_core.config.families import mixture_of
from mudd_core.engine.model import Model

NEAR = (
    2.0**-12
)  # fraction of the largest logit: rounding of the same sums in another order, through all layers
# (sequences, positions), so large that fp32 matmuls pack weights on use and keep no packed copies.
_SHAPE = (8, 32)


def probe_ids(model: ModelConfig) -> Int64:
    """Return the probe ids; sequences are at most as long as the model's maximum."""
    shape = (_SHAPE[0], min(_SHAPE[1], model.max_seq_len))
    return np.random.default_rng(0).integers(0, model.vocab_size, shape)


def probe_logits(model: Model) -> Float32:
    """Return the logits of a model for the probe ids, and free the memory of the computation."""
    found = model.logits(probe_ids(model.config))
    model.drop_plans()
    return found


def surely_routed(model: Model) -> Bool | None:
    """Return a mask [B, T] of probe tokens whose experts do not depend on the order of sums; None if unknown.

    If the margin between a token's last chosen expert and the next one is within rounding, either may be chosen. Later
    tokens of the sequence attend to this token, so they are excluded as well.
    """
    experts, ids = mixture_of(model.config), probe_ids(model.config)
    if experts is None or experts.capacity_factor > 0 or model.comm is not None:
        # A full expert drops tokens, and each rank captures only the router logits of its own tokens.
        return None
    sure = np.ones(ids.shape, np.bool_)
    for logits in model.capture(ids, "*.router.logits").values():
        ranked = np.sort(logits, axis=-1)
        if experts.top_k < experts.n_expert:
            margin = ranked[..., -experts.top_k] - ranked[..., -experts.top_k - 1]
            sure &= margin > NEAR * np.abs(logits).max()
    model.drop_plans()
    return np.logical_and.accumulate(sure, axis=1)


def difference(got: Float32, want: Float32) -> tuple[float, float]:
    """Return (largest difference, largest logit), computed sequence by sequence; NaN if a value is NaN."""
    far = [np.abs(one - other).max() for one, other in zip(got, want, strict=True)]
    return float(np.max(far)), float(np.max([np.abs(one).max() for one in want]))
