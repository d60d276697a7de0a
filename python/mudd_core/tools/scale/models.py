"""The inputs of the cost formulas, computed from a config."""

from __future__ import annotations

import math

from mudd_core import _core
from mudd_core.config import Config, ModelConfig, head_width, kv_heads, mixture_of
from mudd_core.config.schema import lora_of
from mudd_core.engine.flops import expert_weights, flops_per_token
from mudd_core.engine.frozen import choose_trained
from mudd_core.engine.model import Model
from mudd_core.run.build.memory_plan import EXPERT_AXES
from mudd_core.tools.scale.cost import Shape, Training


def _weights(config: Config, model: ModelConfig) -> int:
    """Return the number of trained parameters."""
    booked = Model(model, booked_only=True, lora=lora_of(config))
    booked.train_only(choose_trained(booked.store, config.trained))
    return int(booked.store.trained_elements)


def _gathered(config: Config, model: ModelConfig) -> dict[bool, tuple[float, float]]:
    """Return the bytes that sharded weights gather (forward, backward), for experts (True) and all others (False).

    Layers are gathered for each pass, embedding and head for one. In a bf16 run, matmul weights are sent as bf16.
    """
    store = Model(model, booked_only=True).store
    found = {True: [0.0, 0.0], False: [0.0, 0.0]}
    rounded = {role.name for role in _core.roles() if role.kind == "matrix"} - {"router"} | {"head"}
    for name in store.names():
        about = store.describe(name)
        rounds = config.train.precision == "bf16" and about["role"] in rounded
        size = math.prod(about["shape"]) * (2 if rounds else 4)
        passes = found[len(about["shape"]) == EXPERT_AXES]
        passes[0] += size
        passes[1] += size if name.startswith("blocks.") else 0
    return {kind: (one, other) for kind, (one, other) in found.items()}


def training_of(config: Config, model: ModelConfig) -> Training:
    """Return the training step of a config. model: the model's config with its vocabulary size."""
    weights, last = _weights(config, model), model.vocab_size * model.d_model
    flops = flops_per_token(model, model.vocab_size, config.train.seq_len)
    gathered, mixture = _gathered(config, model), mixture_of(model)
    rows = 0.0
    if mixture:
        out = 2 if config.train.precision == "bf16" else 4  # token rows go forward in the type of the matmul
        a_row = mixture.d_model * (out + 3 * 4) + 2 * 4  # plus the gate and its gradient
        rows = mixture.n_layer * mixture.top_k * a_row
    return Training(
        weights,
        min(last, weights),
        flops,
        experts=expert_weights(model),
        rows=rows,
        passes=gathered[False],
        expert_passes=gathered[True],
        layers=model.n_layer,
    )


def shape_of(config: Config, model: ModelConfig) -> Shape:
    """Return the sizes that mesh axes shard."""
    flops = flops_per_token(model, model.vocab_size, config.train.seq_len)
    keys = kv_heads(model) * head_width(model)
    mixture = mixture_of(model)
    experts, chosen = expert_weights(model), mixture.top_k if mixture else 0
    return Shape(_weights(config, model), flops, model.d_model, model.n_layer, keys, experts, chosen)
