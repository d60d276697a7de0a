"""The settings of models as fields of GGUF, by names without the architecture."""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Float32, JsonObject
from mudd_core.checkpoint.gguf_file import boolean, float32, string, uint32
from mudd_core.interop.hf_rows import size_of
from mudd_core.interop.hf_windows import FULL, SLIDING


def rope_of(settings: JsonObject, kind: str = FULL) -> JsonObject:
    """Return the settings of RoPE; empty for a model without. kind: of layers, if they have different settings."""
    found = settings.get("rope_parameters")
    if not isinstance(found, dict):
        return {}
    of_kind = found.get(kind, found)
    assert isinstance(of_kind, dict)
    return of_kind


def period_of(settings: JsonObject) -> int:
    """Return the number of layers from one without a sliding window to the next, 1 without windows."""
    layers = size_of(settings, "num_hidden_layers")
    kinds = settings["layer_types"]
    assert isinstance(kinds, list)
    return kinds.index(FULL) + 1 if FULL in kinds else layers + 1


def rotated_width(settings: JsonObject, width: int) -> int:
    """Return the rotated elements of a head. width: all of them."""
    return int(width * _number(rope_of(settings), "partial_rotary_factor"))


def _number(settings: JsonObject, name: str) -> float:
    value = settings[name]
    assert isinstance(value, int | float)
    return float(value)


def rotary(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a model with RoPE and RMSNorm."""
    heads, rope = size_of(settings, "num_attention_heads"), rope_of(settings)
    width = (
        size_of(settings, "head_dim")
        if settings.get("head_dim")
        else size_of(settings, "hidden_size") // heads
    )
    found = {
        "vocab_size": uint32(size_of(settings, "vocab_size")),
        "embedding_length": uint32(size_of(settings, "hidden_size")),
        "block_count": uint32(size_of(settings, "num_hidden_layers")),
        "feed_forward_length": uint32(size_of(settings, "intermediate_size")),
        "attention.head_count": uint32(heads),
        "attention.head_count_kv": uint32(size_of(settings, "num_key_value_heads")),
        "attention.key_length": uint32(width),
        "attention.value_length": uint32(width),
        "attention.layer_norm_rms_epsilon": float32(_number(settings, "rms_norm_eps")),
        "rope.dimension_count": uint32(width),
        "rope.freq_base": float32(_number(rope, "rope_theta")),
    }
    if rope.get("rope_type") == "linear":
        found |= {
            "rope.scaling.type": string("linear"),
            "rope.scaling.factor": float32(_number(rope, "factor")),
        }
    return found


def windowed(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a model with windows in all but each n-th layer, with their own RoPE theta.

    A model without windows has no such field.
    """
    if period_of(settings) == 1:
        return rotary(settings)
    return {
        **rotary(settings),
        "attention.sliding_window": uint32(size_of(settings, "sliding_window")),
        "attention.sliding_window_pattern": uint32(period_of(settings)),
        "rope.freq_base_swa": float32(_number(rope_of(settings, SLIDING), "rope_theta")),
    }


def mixture(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a Mixtral."""
    return {
        **rotary(settings),
        "expert_count": uint32(size_of(settings, "num_local_experts")),
        "expert_used_count": uint32(size_of(settings, "num_experts_per_tok")),
    }


def qwen3_moe(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a Qwen3-MoE."""
    inner = size_of(settings, "moe_intermediate_size")
    return {
        **rotary({**settings, "intermediate_size": inner}),
        "expert_feed_forward_length": uint32(inner),
        "expert_count": uint32(size_of(settings, "num_experts")),
        "expert_used_count": uint32(size_of(settings, "num_experts_per_tok")),
    }


def phi3(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a Phi-3, whose heads are rotated in part."""
    width = rotated_width(settings, size_of(settings, "head_dim"))
    return {**rotary(settings), "rope.dimension_count": uint32(width)}


def gpt_neox(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a GPT-NeoX."""
    heads, hidden = size_of(settings, "num_attention_heads"), size_of(settings, "hidden_size")
    return {
        "vocab_size": uint32(size_of(settings, "vocab_size")),
        "embedding_length": uint32(hidden),
        "block_count": uint32(size_of(settings, "num_hidden_layers")),
        "feed_forward_length": uint32(size_of(settings, "intermediate_size")),
        "use_parallel_residual": boolean(settings["use_parallel_residual"] is True),
        "attention.head_count": uint32(heads),
        "attention.layer_norm_epsilon": float32(_number(settings, "layer_norm_eps")),
        "rope.dimension_count": uint32(rotated_width(settings, hidden // heads)),
        "rope.freq_base": float32(_number(rope_of(settings), "rope_theta")),
    }


def gpt2(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a GPT-2."""
    return {
        "vocab_size": uint32(size_of(settings, "vocab_size")),
        "embedding_length": uint32(size_of(settings, "n_embd")),
        "block_count": uint32(size_of(settings, "n_layer")),
        "feed_forward_length": uint32(size_of(settings, "n_inner")),
        "attention.head_count": uint32(size_of(settings, "n_head")),
        "attention.layer_norm_epsilon": float32(_number(settings, "layer_norm_epsilon")),
    }


def rope_factors(settings: JsonObject) -> Float32 | None:
    """Return the number by which each frequency of RoPE is divided, [width / 2], with llama3; None for other kinds.

    The number is 1 for wavelengths below original / high, `factor` above original / low, and smooth between them.
    """
    rope = rope_of(settings)
    if rope.get("rope_type") != "llama3":
        return None
    theta, factor = _number(rope, "rope_theta"), _number(rope, "factor")
    low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
    width = size_of(settings, "head_dim")
    wavelengths = 2 * np.pi * theta ** (np.arange(0, width, 2) / width)
    turns = _number(rope, "original_max_position_embeddings") / wavelengths
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
