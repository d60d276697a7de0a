"""config.json of transformers' Llama, Mistral, Qwen2, Qwen3, GPT-2 and Mixtral as our model configs.

Written by transformers 4 (rope_theta, torch_dtype) or 5 (rope_parameters, dtype); absent fields take transformers'
defaults. What our models do not compute is refused by name (hf_fields.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from mudd_core.config.families import (
    GPT2Config,
    MixtralConfig,
    TransformerPPConfig,
)
from mudd_core.config.families.windows import spans_of
from mudd_core.interop.hf_fields import refuse_others, require_known
from mudd_core.interop.hf_rope import rope_base, rope_scaling
from mudd_core.interop.settings import Reader, Settings, TransformerFields

HfModel = TransformerPPConfig | GPT2Config | MixtralConfig
FAMILIES = ("transformer_pp", "gpt2", "mixtral")
SLIDING, FULL = "sliding_attention", "full_attention"


class _Defaults(NamedTuple):
    """What transformers takes for a setting that is not there."""

    max_position_embeddings: int
    num_key_value_heads: int | None
    intermediate_size: int
    vocab_size: int = 32000
    head_dim: int = 0
    rope_theta: float = 1e4
    rms_norm_eps: float = 1e-6


_DEFAULTS = {
    "llama": _Defaults(2048, None, 11008),
    "mistral": _Defaults(131072, 8, 14336),
    "qwen2": _Defaults(32768, 32, 22016, vocab_size=151936),
    "qwen3": _Defaults(32768, 32, 22016, vocab_size=151936, head_dim=128),
    "mixtral": _Defaults(131072, 8, 14336, rope_theta=1e6, rms_norm_eps=1e-5),
}


def model_config(settings: Settings) -> HfModel:
    """Our model config; ValueError names a setting that we cannot express."""
    kind = settings.get("model_type")
    makers: dict[str, Callable[[Reader], HfModel]] = {
        "llama": _llama,
        "mistral": _mistral,
        "qwen2": _qwen2,
        "qwen3": _qwen3,
        "gpt2": _gpt2,
        "mixtral": _mixtral,
    }
    if not isinstance(kind, str) or kind not in makers:
        raise Reader("hf", settings).refusal("model_type", f"one of {', '.join(makers)}", kind)
    require_known(settings, kind)
    return makers[kind](Reader("hf", settings))


def size_names(settings: Settings) -> tuple[str, str]:
    """What this kind of model calls the number of its layers and its width."""
    return (
        ("n_layer", "n_embd")
        if settings.get("model_type") == "gpt2"
        else ("num_hidden_layers", "hidden_size")
    )


def _shared(read: Reader, defaults: _Defaults) -> TransformerFields:
    """What all models with rotary positions say alike."""
    refuse_others(read.config, hidden_act=("silu", "swish"))
    heads = read.whole("num_attention_heads", 32)
    groups = defaults.num_key_value_heads if "num_key_value_heads" not in read.config else None
    width = defaults.head_dim if "head_dim" not in read.config else 0
    return {
        "vocab_size": read.whole("vocab_size", defaults.vocab_size),
        "max_seq_len": read.whole("max_position_embeddings", defaults.max_position_embeddings),
        "d_model": read.whole("hidden_size", 4096),
        "n_layer": read.whole("num_hidden_layers", 32),
        "n_head": heads,
        "n_kv_head": read.whole("num_key_value_heads", groups or heads),
        "d_head": read.whole("head_dim", width, low=0),
        "d_ff": read.whole("intermediate_size", defaults.intermediate_size),
        "rope_base": rope_base(read.config, defaults.rope_theta),
        "norm_eps": read.number("rms_norm_eps", defaults.rms_norm_eps),
        "tie_embeddings": read.flag("tie_word_embeddings"),
        "init_std": read.number("initializer_range", 0.02),
    }


def _rotary(read: Reader, kind: str) -> TransformerPPConfig:
    """The fields that Llama, Mistral, Qwen2 and Qwen3 say alike."""
    shared = _shared(read, _DEFAULTS[kind])
    return TransformerPPConfig(**shared, **rope_scaling(read.config, shared["max_seq_len"]))


def _llama(read: Reader) -> TransformerPPConfig:
    model = _rotary(read, "llama")
    return replace(model, attn_bias=read.flag("attention_bias"), mlp_bias=read.flag("mlp_bias"))


def _mistral(read: Reader) -> TransformerPPConfig:
    """Every layer has the window, if there is one."""
    model = _rotary(read, "mistral")
    has_window = read.config.get("sliding_window", 0) is not None
    types = read.config.get("layer_types")
    if types is not None and types != [SLIDING if has_window else FULL] * model.n_layer:
        raise read.refusal("layer_types", "null: all layers of a Mistral are alike", types)
    return replace(model, sliding_window=read.whole("sliding_window", 4096) if has_window else 0)


def _qwen2(read: Reader) -> TransformerPPConfig:
    return replace(_with_windows(read, _rotary(read, "qwen2")), qkv_bias=True)


def _qwen3(read: Reader) -> TransformerPPConfig:
    model = _with_windows(read, _rotary(read, "qwen3"))
    return replace(model, qk_norm=True, attn_bias=read.flag("attention_bias"))


def _with_windows(read: Reader, model: TransformerPPConfig) -> TransformerPPConfig:
    """The model with the windows of Qwen: in layers that layer_types names, or from max_window_layers on."""
    has_window = read.flag("use_sliding_window") and read.config.get("sliding_window", 0) is not None
    types, names = read.config.get("layer_types"), (SLIDING, FULL)
    if types is None:
        first = read.whole("max_window_layers", 28, low=0)
        windowed = list(range(first, model.n_layer)) if has_window else []
    else:
        if not isinstance(types, list) or len(types) != model.n_layer or not all(t in names for t in types):
            raise read.refusal("layer_types", f"{model.n_layer} of {' and '.join(names)}", types)
        windowed = [layer for layer, kind in enumerate(types) if kind == SLIDING]
        if windowed and not has_window:
            raise read.refusal("use_sliding_window", "true, as layer_types has sliding_attention", False)
    if not windowed:
        return model
    spans = spans_of(windowed, model.n_layer)
    return replace(model, sliding_window=read.whole("sliding_window", 4096), sliding_layers=spans)


def _mixtral(read: Reader) -> MixtralConfig:
    shared = _shared(read, _DEFAULTS["mixtral"])
    if rope_scaling(read.config, shared["max_seq_len"]):
        raise read.refusal(
            "rope_scaling", "null", read.config.get("rope_scaling", "a scaling in rope_parameters")
        )
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
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu_erf",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def _gpt2(read: Reader) -> GPT2Config:
    refuse_others(
        read.config,
        activation_function=tuple(ACTIVATIONS),
        scale_attn_weights=(True, False),
        scale_attn_by_inverse_layer_idx=(True, False),
    )
    width = read.whole("n_embd", 768)
    return GPT2Config(
        vocab_size=read.whole("vocab_size", 50257),
        max_seq_len=read.whole("n_positions", 1024),
        d_model=width,
        n_layer=read.whole("n_layer", 12),
        n_head=read.whole("n_head", 12),
        d_ff=read.whole("n_inner", 4 * width),
        activation=ACTIVATIONS[str(read.config.get("activation_function", "gelu_new"))],
        scale_scores=read.flag("scale_attn_weights", True),
        scale_by_layer=read.flag("scale_attn_by_inverse_layer_idx"),
        norm_eps=read.number("layer_norm_epsilon", 1e-5),
        tie_embeddings=read.flag("tie_word_embeddings", True),
        init_std=read.number("initializer_range", 0.02),
        embd_dropout=read.number("embd_pdrop", 0.1),
        attn_dropout=read.number("attn_pdrop", 0.1),
        resid_dropout=read.number("resid_pdrop", 0.1),
    )
