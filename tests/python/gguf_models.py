"""Settings of small models of transformers for the tests of GGUF files."""

from __future__ import annotations

from typing import Any

from hf_models import LLAMA3, layered

SIZE = 400  # tokens
_SHARED = {
    "vocab_size": SIZE + 9,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
}
_ONE_HEAD_COUNT = {name: value for name, value in _SHARED.items() if name != "num_key_value_heads"}
_GPT2 = {"vocab_size": SIZE + 9, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 96}
_WINDOWS = ["full_attention" if n == 2 else "sliding_attention" for n in range(5)]
_GEMMA3 = {
    **_SHARED,
    "num_hidden_layers": 5,
    "head_dim": 24,
    "query_pre_attn_scalar": 24,
    "sliding_window": 5,
    "layer_types": _WINDOWS,
    "rope_parameters": layered({"rope_type": "linear", "factor": 2.0, "rope_theta": 900.0}, 50.0),
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**_SHARED, "rope_theta": 5000.0}),
    "llama_biases": ("Llama", {**_SHARED, "head_dim": 24, "attention_bias": True, "mlp_bias": True}),
    "llama3": (
        "Llama",
        {**_SHARED, "tie_word_embeddings": True, "rope_parameters": {"rope_theta": 500.0, **LLAMA3}},
    ),
    "llama_linear": (
        "Llama",
        {**_SHARED, "rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0}},
    ),
    "mistral": ("Mistral", {**_SHARED, "sliding_window": 32}),
    "qwen2": ("Qwen2", {**_SHARED, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**_SHARED, "head_dim": 32}),
    "gemma3": ("Gemma3Text", _GEMMA3),
    "gemma3_full": ("Gemma3Text", {**_GEMMA3, "layer_types": ["full_attention"] * 5}),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            **_SHARED,
            "head_dim": 32,
            "moe_intermediate_size": 32,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
        },
    ),
    "smollm3": ("SmolLM3", {**_SHARED, "num_hidden_layers": 5, "rope_theta": 500.0, "pad_token_id": None}),
    "phi3": (
        "Phi3",
        {**_SHARED, "partial_rotary_factor": 0.5, "rope_theta": 500.0, "pad_token_id": None},
    ),
    "olmo2": ("Olmo2", {**_SHARED, "rope_theta": 500.0, "pad_token_id": None}),
    "olmo2_tied": ("Olmo2", {**_SHARED, "tie_word_embeddings": True, "pad_token_id": None}),
    "gpt_neox_tied": ("GPTNeoX", {**_ONE_HEAD_COUNT, "tie_word_embeddings": True}),
    "gpt_neox": ("GPTNeoX", {**_ONE_HEAD_COUNT, "rotary_pct": 0.5, "rotary_emb_base": 500}),
    "olmo3": (
        "Olmo3",
        {
            **_SHARED,
            "num_hidden_layers": 5,
            "sliding_window": 5,
            "layer_types": _WINDOWS,
            "rope_parameters": layered({"rope_type": "linear", "factor": 2.0, "rope_theta": 900.0}, 900.0),
            "pad_token_id": None,
        },
    ),
    "gpt2": ("GPT2", _GPT2),
    "mixtral": ("Mixtral", {**_SHARED, "num_local_experts": 4, "num_experts_per_tok": 2}),
}
