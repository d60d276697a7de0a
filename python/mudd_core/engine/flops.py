"""Floating-point operations of a training step by formula, for the percentage of the measured peak.

Each token needs 6 operations for each weight that enters a matmul: two in forward, four in backward. The head is
counted once, tied or not; an embedding lookup needs none. Causal attention over T tokens adds 6 L T d, and less in
layers with a sliding window. If weights are frozen (train.trainable), Engine.flops_per_token scales this by the matmuls
that its graph still has.
"""

from __future__ import annotations

import math
from functools import cache

from mudd_core.config import ModelConfig, head_width, mixture_of
from mudd_core.config.families import TransformerPPConfig, own_family
from mudd_core.config.families.ngrams import ngram_weights
from mudd_core.config.families.spans import layers_of


def matrix_weights(model: ModelConfig, vocab_size: int) -> int:
    """Return the number of weights that enter a matmul for a token, including the head."""
    blocks = (
        model.matrix_weights() + ngram_weights(model)
        if own_family(model) is None
        else _declared_matrices(model)
    )
    return blocks + vocab_size * model.d_model


def expert_weights(model: ModelConfig) -> int:
    """Return the number of weights of all experts of all layers; 0 for a model without experts."""
    mixture = mixture_of(model)
    if mixture is None:
        return 0
    return 3 * mixture.d_model * mixture.d_ff * mixture.n_expert * mixture.n_layer


@cache
def _declared_matrices(model: ModelConfig) -> int:
    """Return the number of weights in matrices that a user's family declares, without embedding and head."""
    from mudd_core import _core
    from mudd_core.engine.planned import declare_parameters

    store = _core.ParamStore()
    declare_parameters(model, store, None)
    about = [store.describe(name) for name in store.names()]
    return sum(math.prod(one["shape"]) for one in about if one["role"] in ("matrix", "mix"))


def flops_per_token(model: ModelConfig, vocab_size: int, seq_len: int) -> float:
    """Return the FLOPs of forward and backward for one trained token."""
    attention_width = model.n_head * head_width(model)
    keys = float(
        model.n_layer * seq_len
    )  # twice the mean number of keys that a query sees, summed over all layers
    if isinstance(model, TransformerPPConfig) and 0 < (window := model.sliding_window) < seq_len:
        windowed = len(layers_of(model.sliding_layers, model.n_layer))
        keys -= windowed * (seq_len - 2 * window + window * window / seq_len)
    return 6.0 * matrix_weights(model, vocab_size) + 6.0 * keys * attention_width


def peak_flops(precision: str, tries: int = 20) -> float:
    """Measure the peak FLOP/s of the threads in use, with the instructions that train.precision uses.

    tries: number of measurements, about 2 ms each.
    """
    from mudd_core import _core

    rate = _core.bf16_peak_gflops if precision == "bf16" else _core.peak_gflops
    return 1e9 * rate(_core.num_threads(), tries)
