"""Logits on made-up ids, by which an export is compared with its run."""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Float32, Int64
from mudd_core.config import ModelConfig
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


def difference(got: Float32, want: Float32) -> tuple[float, float]:
    """(largest difference, largest logit), a sequence at a time; NaN where one is."""
    far = [np.abs(one - other).max() for one, other in zip(got, want, strict=True)]
    return float(np.max(far)), float(np.max([np.abs(one).max() for one in want]))
