"""Small random models of transformers, shared by the tests of Hugging Face interchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

# Gradients are compared in evaluation mode, in which transformers has no dropout.
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
V, D, F, L, H = 257, 16, 24, 2, 4
SHARED = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": F,
    "num_hidden_layers": L,
    "num_attention_heads": H,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "attn_implementation": "eager",
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def layered(full: dict[str, Any], local: float) -> dict[str, Any]:
    """Return rotary parameters by type of layer. full: of the layers without a window. local: theta with one."""
    return {
        "full_attention": full,
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


WINDOW = {"use_sliding_window": True, "sliding_window": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**SHARED, "rope_theta": 500.0}),
    "llama_tied": ("Llama", {**SHARED, "tie_word_embeddings": True, "num_key_value_heads": H}),
    "llama_biases": ("Llama", {**SHARED, "head_dim": 6, "attention_bias": True, "mlp_bias": True}),
    "llama3": ("Llama", {**SHARED, "rope_parameters": {"rope_theta": 500.0, **LLAMA3}}),
    "mistral": ("Mistral", {**SHARED, "head_dim": 6, "sliding_window": 5}),
    "qwen2": (
        "Qwen2",
        {**SHARED, "tie_word_embeddings": True, **WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {**SHARED, "head_dim": 10, "attention_bias": True, "num_key_value_heads": 1}),
    "gemma3": (
        "Gemma3Text",
        {
            **SHARED,
            "head_dim": 10,
            "query_pre_attn_scalar": 7,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": layered({"rope_type": "linear", "factor": 2.0, "rope_theta": 900.0}, 50.0),
        },
    ),
    "olmo2": ("Olmo2", {**SHARED, "rope_theta": 500.0}),
    "olmo3": (
        "Olmo3",
        {
            **SHARED,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": layered({**LLAMA3, "rope_theta": 900.0}, 900.0),
        },
    ),
    "phi3": (
        "Phi3",
        {**SHARED, "head_dim": 8, "sliding_window": 5, "partial_rotary_factor": 0.5, "rope_theta": 500.0},
    ),
    "smollm3": (
        "SmolLM3",
        {**SHARED, **WINDOW, "no_rope_layers": [1, 0], "head_dim": 6, "mlp_bias": True},
    ),
    "gpt2": (
        "GPT2",
        {
            "vocab_size": V,
            "n_embd": D,
            "n_layer": L,
            "n_head": H,
            "n_inner": F,
            "n_positions": 32,
            "attn_implementation": "eager",
            "bos_token_id": None,
            "eos_token_id": None,
            **NO_DROPOUT,
        },
    ),
    "gpt_neox": (
        "GPTNeoX",
        {
            **{name: value for name, value in SHARED.items() if name != "num_key_value_heads"},
            "hidden_size": 32,
            "rotary_pct": 0.5,
            "rotary_emb_base": 500,
        },
    ),
    "gpt2_other": (
        "GPT2",
        {
            "vocab_size": V,
            "n_embd": D,
            "n_layer": L,
            "n_head": H,
            "n_positions": 32,
            "activation_function": "gelu",
            "scale_attn_weights": False,
            "scale_attn_by_inverse_layer_idx": True,
            "attn_implementation": "eager",
            "bos_token_id": None,
            "eos_token_id": None,
            **NO_DROPOUT,
        },
    ),
    "mixtral": (
        "Mixtral",
        {
            **SHARED,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "output_router_logits": True,
            "router_aux_loss_coef": 0.3,
        },
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            **SHARED,
            "head_dim": 6,
            "moe_intermediate_size": 20,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
        },
    ),
    "mixtral_plain": ("Mixtral", {**SHARED, "num_local_experts": 4, "num_experts_per_tok": 1}),
}


def make(name: str, folder: Path, **save: Any) -> Any:
    """Return a random model of transformers in evaluation mode, saved in the folder."""
    kind, settings = MODELS[name]
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(1.0 if p.dim() == 1 and "bias" not in key else 0.0, 0.15)
    model.eval().save_pretrained(folder, **save)
    return model
