"""Our model configs as config.json of transformers; the reverse of hf_settings.py."""

from __future__ import annotations

from mudd_core.base.types import JsonObject
from mudd_core.config.families import (
    GPT2Config,
    MixtralConfig,
    ModelConfig,
    TransformerPPConfig,
    head_width,
    kv_heads,
)
from mudd_core.config.families.windows import layers_of
from mudd_core.interop.hf_rope import rope_settings
from mudd_core.interop.hf_settings import ACTIVATIONS, FAMILIES, FULL, SLIDING
from mudd_core.interop.lost_fields import spelled


def original_config(model: ModelConfig) -> JsonObject:
    """config.json of a model of ours; ValueError for a family or a feature that transformers does not have."""
    if isinstance(model, TransformerPPConfig):
        own = _to_rotary(model)
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
        **rope_settings(model),
        "initializer_range": model.init_std,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _to_rotary(model: TransformerPPConfig) -> JsonObject:
    """The type that has what the model has; lost_fields refuses what that type lacks."""
    if model.qk_norm:
        own = _to_shared(model, "qwen3", "Qwen3ForCausalLM")
        return {**own, **_to_windows(model), "attention_bias": model.attn_bias}
    if model.qkv_bias and not model.attn_bias:
        return {**_to_shared(model, "qwen2", "Qwen2ForCausalLM"), **_to_windows(model)}
    if model.sliding_window:
        own = _to_shared(model, "mistral", "MistralForCausalLM")
        return {**own, "sliding_window": model.sliding_window}
    biases = {"attention_bias": model.attn_bias, "mlp_bias": model.mlp_bias}
    return {**_to_shared(model, "llama", "LlamaForCausalLM"), **biases}


def _to_windows(model: TransformerPPConfig) -> JsonObject:
    layers = range(model.n_layer)
    windowed = layers_of(model.sliding_layers, model.n_layer) if model.sliding_window else ()
    return {
        "use_sliding_window": bool(windowed),
        "sliding_window": model.sliding_window or None,
        "max_window_layers": min(windowed, default=model.n_layer),
        "layer_types": [SLIDING if layer in windowed else FULL for layer in layers],
    }


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
        "activation_function": spelled("hf", "activation", ACTIVATIONS, model.activation),
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
