"""What the formulas need of a config."""

from __future__ import annotations

from mudd_core.config import Config, ModelConfig, head_width, kv_heads, mixture_of
from mudd_core.config.tune import lora_of
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.model import Model
from mudd_core.engine.trainable import choose_trained
from mudd_core.tools.scale.axes import Shape
from mudd_core.tools.scale.cost import Training


def _weights(config: Config, model: ModelConfig) -> int:
    """Weights that train."""
    booked = Model(model, booked_only=True, lora=lora_of(config))
    choose_trained(booked, config.trained)
    return int(booked.store.trained_elements)


def training_of(config: Config, model: ModelConfig) -> Training:
    """The step of a config whose model has its vocabulary."""
    weights, last = _weights(config, model), model.vocab_size * model.d_model
    flops = flops_per_token(model, model.vocab_size, config.train.seq_len)
    return Training(weights, min(last, weights), flops)


def shape_of(config: Config, model: ModelConfig) -> Shape:
    """What the axes cut."""
    flops = flops_per_token(model, model.vocab_size, config.train.seq_len)
    keys = kv_heads(model) * head_width(model)
    experts = chosen = 0
    if mixture := mixture_of(model):
        experts = 3 * mixture.d_model * mixture.d_ff * mixture.n_expert * mixture.n_layer
        chosen = mixture.top_k
    return Shape(_weights(config, model), flops, model.d_model, model.n_layer, keys, experts, chosen)
