"""Logits on made-up ids, by which an export is compared with its run."""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Bool, Float32, Int64
from mudd_core.config import ModelConfig
from mudd_core.config.families import mixture_of
from mudd_core.engine.model import Model

NEAR = 2.0**-12  # of the largest logit: rounding of the same sums in another order, through all layers
# Sequences and positions: so many rows that fp32 matmuls pack weights where they use them, and keep no packed copies.
_SHAPE = (8, 32)


def probe_ids(model: ModelConfig) -> Int64:
    """The ids, of sequences no longer than the model's longest."""
    shape = (_SHAPE[0], min(_SHAPE[1], model.max_seq_len))
    return np.random.default_rng(0).integers(0, model.vocab_size, shape)


def probe_logits(model: Model) -> Float32:
    """The logits of a model at the ids; the memory that it computed them in is free afterwards."""
    found = model.logits(probe_ids(model.config))
    model.drop_plans()
    return found


def surely_routed(model: Model) -> Bool | None:
    """Which tokens [B, T] of the probe have the same experts in another order of sums; None where that is not known.

    Of a token whose margin between the last chosen expert and the next is within rounding, either may be taken. The
    tokens after it in its sequence attend to it.
    """
    experts, ids = mixture_of(model.config), probe_ids(model.config)
    if experts is None or experts.capacity_factor > 0 or model.comm is not None:
        return None  # a full expert passes tokens on, and ranks hold the model between them
    sure = np.ones(ids.shape, np.bool_)
    for logits in model.capture(ids, "*.router.logits").values():
        ranked = np.sort(logits, axis=-1)
        if experts.top_k < experts.n_expert:
            margin = ranked[..., -experts.top_k] - ranked[..., -experts.top_k - 1]
            sure &= margin > NEAR * np.abs(logits).max()
    model.drop_plans()
    return np.logical_and.accumulate(sure, axis=1)


def difference(got: Float32, want: Float32) -> tuple[float, float]:
    """(largest difference, largest logit), a sequence at a time; NaN where one is."""
    far = [np.abs(one - other).max() for one, other in zip(got, want, strict=True)]
    return float(np.max(far)), float(np.max([np.abs(one).max() for one in want]))
