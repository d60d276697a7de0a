"""config.json of transformers' Llama, GPT-2 and Mixtral as our model configs, and back.

Written by transformers 4 (rope_theta, torch_dtype) or 5 (rope_parameters, dtype); absent fields take transformers'
defaults. What our models do not compute is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mudd_core.base.types import Json, JsonObject
from mudd_core.config.families import (
    GPT2Config,
    MixtralConfig,
    ModelConfig,
    TransformerPPConfig,
    head_width,
    kv_heads,
)
from mudd_core.interop.lost_fields import spelled
from mudd_core.interop.settings import Reader, Settings, TransformerFields

HfModel = TransformerPPConfig | GPT2Config | MixtralConfig
FAMILIES = ("transformer_pp", "gpt2", "mixtral")
MODEL_TYPES = ("llama", "gpt2", "mixtral")


class _Defaults(NamedTuple):
    max_position_embeddings: int
    num_key_value_heads: int | None
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float


_LLAMA = _Defaults(2048, None, 11008, rope_theta=1e4, rms_norm_eps=1e-6)
_MIXTRAL = _Defaults(131072, 8, 14336, rope_theta=1e6, rms_norm_eps=1e-5)


def model_config(settings: Settings) -> HfModel:
    """Our model config; ValueError names a setting that we cannot express."""
    kind = settings.get("model_type")
    makers: dict[str, Callable[[Reader], HfModel]] = {"llama": _llama, "gpt2": _gpt2, "mixtral": _mixtral}
    if not isinstance(kind, str) or kind not in makers:
        raise Reader("hf", settings).refusal("model_type", f"one of {', '.join(MODEL_TYPES)}", kind)
    return makers[kind](Reader("hf", settings))


def size_names(settings: Settings) -> tuple[str, str]:
    """What this kind of model calls the number of its layers and its width."""
    return (
        ("n_layer", "n_embd")
        if settings.get("model_type") == "gpt2"
        else ("num_hidden_layers", "hidden_size")
    )


def _refuse(settings: Settings, **allowed: tuple[Json, ...]) -> None:
    """ValueError unless each setting that is there has one of the allowed values."""
    for name, values in allowed.items():
        if name in settings and settings[name] not in values:
            raise ValueError(
                f"[hf] {name}: expected {' or '.join(map(repr, values))}, got {settings[name]!r}"
            )


def _table(settings: Settings, name: str) -> Settings:
    """An object among the settings, empty where it is not set."""
    given = settings.get(name) or {}
    if not isinstance(given, Mapping):
        raise Reader("hf", settings).refusal(name, "an object", given)
    return given


def _rope_base(settings: Settings, default: float) -> float:
    rope, scaling = _table(settings, "rope_parameters"), _table(settings, "rope_scaling")
    kinds = {str(given.get(key, "default")) for given in (rope, scaling) for key in ("rope_type", "type")}
    if kinds != {"default"} or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(f"[hf] rope_parameters: expected plain rotary positions, got {rope or scaling}")
    return Reader("hf", rope).number("rope_theta", Reader("hf", settings).number("rope_theta", default))


def _shared(read: Reader, defaults: _Defaults) -> TransformerFields:
    """What Llama and Mixtral say alike. defaults: what transformers takes for a setting that is not there."""
    _refuse(read.config, hidden_act=("silu", "swish"))
    heads = read.whole("num_attention_heads", 32)
    groups = defaults.num_key_value_heads if "num_key_value_heads" not in read.config else None
    return {
        "vocab_size": read.whole("vocab_size", 32000),
        "max_seq_len": read.whole("max_position_embeddings", defaults.max_position_embeddings),
        "d_model": read.whole("hidden_size", 4096),
        "n_layer": read.whole("num_hidden_layers", 32),
        "n_head": heads,
        "n_kv_head": read.whole("num_key_value_heads", groups or heads),
        "d_head": read.whole("head_dim", 0, low=0),
        "d_ff": read.whole("intermediate_size", defaults.intermediate_size),
        "rope_base": _rope_base(read.config, defaults.rope_theta),
        "norm_eps": read.number("rms_norm_eps", defaults.rms_norm_eps),
        "tie_embeddings": read.flag("tie_word_embeddings"),
        "init_std": read.number("initializer_range", 0.02),
    }


def _llama(read: Reader) -> TransformerPPConfig:
    return TransformerPPConfig(
        **_shared(read, _LLAMA), attn_bias=read.flag("attention_bias"), mlp_bias=read.flag("mlp_bias")
    )


def _mixtral(read: Reader) -> MixtralConfig:
    shared = _shared(read, _MIXTRAL)
    window = read.whole("sliding_window", shared["max_seq_len"])
    if window < shared["max_seq_len"]:
        raise ValueError(f"[hf] sliding_window: expected null, got {window!r}")
    aux = read.number("router_aux_loss_coef", 0.001)
    return MixtralConfig(
        **shared,
        n_expert=read.whole("num_local_experts", read.whole("num_experts", 8)),
        top_k=read.whole("num_experts_per_tok", 2),
        capacity_factor=read.number("capacity_factor", 0.0),
        aux_coef=aux if read.flag("output_router_logits") else 0.0,
        aux_scope="batch",
        jitter=read.number("router_jitter_noise", 0.0),
    )


# transformers' names of GPT-2's activations -> ours; of equal ones the first is written.
_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu_erf",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def _gpt2(read: Reader) -> GPT2Config:
    _refuse(
        read.config,
        activation_function=tuple(_ACTIVATIONS),
        scale_attn_weights=(True, False),
        scale_attn_by_inverse_layer_idx=(True, False),
        add_cross_attention=(False,),
    )
    width = read.whole("n_embd", 768)
    return GPT2Config(
        vocab_size=read.whole("vocab_size", 50257),
        max_seq_len=read.whole("n_positions", 1024),
        d_model=width,
        n_layer=read.whole("n_layer", 12),
        n_head=read.whole("n_head", 12),
        d_ff=read.whole("n_inner", 4 * width),
        activation=_ACTIVATIONS[str(read.config.get("activation_function", "gelu_new"))],
        scale_scores=read.flag("scale_attn_weights", True),
        scale_by_layer=read.flag("scale_attn_by_inverse_layer_idx"),
        norm_eps=read.number("layer_norm_epsilon", 1e-5),
        tie_embeddings=read.flag("tie_word_embeddings", True),
        init_std=read.number("initializer_range", 0.02),
        embd_dropout=read.number("embd_pdrop", 0.1),
        attn_dropout=read.number("attn_pdrop", 0.1),
        resid_dropout=read.number("resid_pdrop", 0.1),
    )


def original_config(model: ModelConfig) -> JsonObject:
    """config.json of a model of ours; ValueError for a family or a feature that transformers does not have."""
    if isinstance(model, TransformerPPConfig):
        own = _to_llama(model)
    elif isinstance(model, MixtralConfig):
        own = _to_mixtral(model)
    elif isinstance(model, GPT2Config):
        own = _to_gpt2(model)
    else:
        raise ValueError(f"[hf] family: expected one of {', '.join(FAMILIES)}, got '{model.family}'")
    return {
        **own,
        "dtype": "float32",
        "use_cache": True,
        "tie_word_embeddings": model.tie_embeddings,
    }


def _to_shared(model: TransformerPPConfig | MixtralConfig, kind: str, class_name: str) -> JsonObject:
    return {
        "architectures": [class_name],
        "model_type": kind,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_seq_len,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "num_key_value_heads": kv_heads(model),
        "head_dim": head_width(model),
        "intermediate_size": model.d_ff,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm_eps,
        "rope_theta": model.rope_base,
        "rope_parameters": {"rope_theta": model.rope_base, "rope_type": "default"},
        "initializer_range": model.init_std,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _to_llama(model: TransformerPPConfig) -> JsonObject:
    biases = {"attention_bias": model.attn_bias, "mlp_bias": model.mlp_bias}
    return {**_to_shared(model, "llama", "LlamaForCausalLM"), **biases}


def _to_mixtral(model: MixtralConfig) -> JsonObject:
    return {
        **_to_shared(model, "mixtral", "MixtralForCausalLM"),
        "num_local_experts": model.n_expert,
        "num_experts_per_tok": model.top_k,
        "router_aux_loss_coef": model.aux_coef,
        "output_router_logits": model.aux_coef > 0,
        "router_jitter_noise": model.jitter,
        "sliding_window": None,
    }


def _to_gpt2(model: GPT2Config) -> JsonObject:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.vocab_size,
        "n_positions": model.max_seq_len,
        "n_embd": model.d_model,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_inner": model.d_ff,
        "activation_function": spelled("hf", "activation", _ACTIVATIONS, model.activation),
        "scale_attn_weights": model.scale_scores,
        "scale_attn_by_inverse_layer_idx": model.scale_by_layer,
        "layer_norm_epsilon": model.norm_eps,
        "initializer_range": model.init_std,
        "resid_pdrop": model.resid_dropout,
        "embd_pdrop": model.embd_dropout,
        "attn_pdrop": model.attn_dropout,
        "bos_token_id": None,
        "eos_token_id": None,
    }
