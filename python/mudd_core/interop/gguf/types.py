"""The model types that llama.cpp and mudd_core have, as a table: settings and tensor names of transformers in GGUF.

A type is one entry of TYPES. Fields and tensors of a config.json without an entry are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mudd_core.base.types import Float32, Json, JsonObject
from mudd_core.checkpoint.gguf_file import float32, string, uint32
from mudd_core.interop.hf_rows import size_of


@dataclass(frozen=True)
class Place:
    """The tensor of GGUF for a tensor of transformers. name: without blk.N. and without .weight or .bias.

    heads: the setting with the number of heads, if llama.cpp rotates pairs (2i, 2i + 1) of a head's rows. transformers
    rotates (i, i + width / 2), so the rows are reordered. is_transposed: transformers stores [in, out].
    """

    name: str
    heads: str = ""
    is_transposed: bool = False


@dataclass(frozen=True)
class GgufType:
    """A model type of transformers in GGUF.

    architecture: llama.cpp's name. places: by the names of transformers in a block, or outside of the blocks, without
    .weight or .bias; `*` is the number of an expert. fields: the encoded fields of the settings, by names without the
    architecture. fixed: settings with the values that llama.cpp computes.
    """

    model_type: str
    architecture: str
    places: Mapping[str, Place]
    fields: Callable[[JsonObject], dict[str, bytes]]
    fixed: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)

    def refusal(self, settings: JsonObject) -> str:
        """Return the setting that llama.cpp does not compute, as part of a message; empty if there is none."""
        for name, values in self.fixed.items():
            given = settings.get(name)
            if given is not None and given not in values:
                known = " or ".join(str(value) for value in values)
                return (
                    f"{name} {known}, the only one that llama.cpp computes for {self.model_type}, got {given}"
                )
        scaling = _rope(settings).get("rope_type", "default")
        if scaling == "llama3" and self.architecture != "llama":
            return f"rope_type default or linear for {self.model_type} in llama.cpp, got {scaling}"
        return ""

    def encoded(self, settings: JsonObject) -> dict[str, bytes]:
        """Return the encoded fields of a config.json by their names in GGUF."""
        return {f"{self.architecture}.{name}": value for name, value in self.fields(settings).items()}


def context_length(settings: JsonObject) -> tuple[int, int]:
    """Return (the longest sequence for llama.cpp, the model's).

    llama.cpp has no sliding windows for these types. Up to the length of the window they have no effect.
    """
    longest = size_of(settings, "n_positions" if "n_positions" in settings else "max_position_embeddings")
    window = settings.get("sliding_window")
    return min(longest, window if isinstance(window, int) and window else longest), longest


def _rope(settings: JsonObject) -> JsonObject:
    """Return the settings of RoPE; empty for a model without."""
    found = settings.get("rope_parameters")
    return found if isinstance(found, dict) else {}


def _number(settings: JsonObject, name: str) -> float:
    value = settings[name]
    assert isinstance(value, int | float)
    return float(value)


def _rotary(settings: JsonObject) -> dict[str, bytes]:
    """Return the fields of a model with RoPE and RMSNorm."""
    heads, rope = size_of(settings, "num_attention_heads"), _rope(settings)
    width = (
        size_of(settings, "head_dim")
        if settings.get("head_dim")
        else size_of(settings, "hidden_size") // heads
    )
    found = {
        "vocab_size": uint32(size_of(settings, "vocab_size")),
        "context_length": uint32(context_length(settings)[0]),
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


def _mixture(settings: JsonObject) -> dict[str, bytes]:
    return {
        **_rotary(settings),
        "expert_count": uint32(size_of(settings, "num_local_experts")),
        "expert_used_count": uint32(size_of(settings, "num_experts_per_tok")),
    }


def _gpt2(settings: JsonObject) -> dict[str, bytes]:
    return {
        "vocab_size": uint32(size_of(settings, "vocab_size")),
        "context_length": uint32(size_of(settings, "n_positions")),
        "embedding_length": uint32(size_of(settings, "n_embd")),
        "block_count": uint32(size_of(settings, "n_layer")),
        "feed_forward_length": uint32(size_of(settings, "n_inner")),
        "attention.head_count": uint32(size_of(settings, "n_head")),
        "attention.layer_norm_epsilon": float32(_number(settings, "layer_norm_epsilon")),
    }


_OUTSIDE = {
    "embed_tokens": Place("token_embd"),
    "norm": Place("output_norm"),
    "lm_head": Place("output"),
}
_ATTENTION = {
    "input_layernorm": Place("attn_norm"),
    "post_attention_layernorm": Place("ffn_norm"),
    "self_attn.q_proj": Place("attn_q"),
    "self_attn.k_proj": Place("attn_k"),
    "self_attn.v_proj": Place("attn_v"),
    "self_attn.o_proj": Place("attn_output"),
    "self_attn.q_norm": Place("attn_q_norm"),
    "self_attn.k_norm": Place("attn_k_norm"),
}
_PAIRS = {
    "self_attn.q_proj": Place("attn_q", heads="num_attention_heads"),
    "self_attn.k_proj": Place("attn_k", heads="num_key_value_heads"),
}
_GATED = {
    "mlp.gate_proj": Place("ffn_gate"),
    "mlp.up_proj": Place("ffn_up"),
    "mlp.down_proj": Place("ffn_down"),
}
_EXPERTS = {
    "block_sparse_moe.gate": Place("ffn_gate_inp"),
    "block_sparse_moe.experts.*.w1": Place("ffn_gate_exps"),
    "block_sparse_moe.experts.*.w2": Place("ffn_down_exps"),
    "block_sparse_moe.experts.*.w3": Place("ffn_up_exps"),
}
_GPT2 = {
    "wte": Place("token_embd"),
    "wpe": Place("position_embd"),
    "ln_f": Place("output_norm"),
    "lm_head": Place("output"),
    "ln_1": Place("attn_norm"),
    "ln_2": Place("ffn_norm"),
    "attn.c_attn": Place("attn_qkv", is_transposed=True),
    "attn.c_proj": Place("attn_output", is_transposed=True),
    "mlp.c_fc": Place("ffn_up", is_transposed=True),
    "mlp.c_proj": Place("ffn_down", is_transposed=True),
}
_LLAMA = {**_OUTSIDE, **_ATTENTION, **_PAIRS, **_GATED}
_QWEN = {**_OUTSIDE, **_ATTENTION, **_GATED}

TYPES: Mapping[str, GgufType] = {
    one.model_type: one
    for one in (
        GgufType("llama", "llama", _LLAMA, _rotary),
        GgufType("mistral", "llama", _LLAMA, _rotary),
        GgufType("mixtral", "llama", {**_OUTSIDE, **_ATTENTION, **_PAIRS, **_EXPERTS}, _mixture),
        GgufType("qwen2", "qwen2", _QWEN, _rotary),
        GgufType("qwen3", "qwen3", _QWEN, _rotary, {"attention_bias": (False,)}),
        GgufType(
            "gpt2",
            "gpt2",
            _GPT2,
            _gpt2,
            {
                "activation_function": ("gelu_new",),
                "scale_attn_weights": (True,),
                "scale_attn_by_inverse_layer_idx": (False,),
            },
        ),
    )
}


def gguf_type(settings: JsonObject) -> GgufType:
    """Return the type of a config.json that llama.cpp computes.

    Raise ValueError for another type, and for a setting that llama.cpp does not compute.
    """
    name = settings.get("model_type")
    found = TYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"expected a model type of {', '.join(TYPES)}, got {name}")
    if refusal := found.refusal(settings):
        raise ValueError(f"expected {refusal}")
    return found


def rope_factors(settings: JsonObject) -> Float32 | None:
    """Return the number by which each frequency of RoPE is divided, [width / 2], with llama3; None for other kinds.

    The number is 1 for wavelengths below original / high, `factor` above original / low, and smooth between them.
    """
    rope = _rope(settings)
    if rope.get("rope_type") != "llama3":
        return None
    theta, factor = _number(rope, "rope_theta"), _number(rope, "factor")
    low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
    width = size_of(settings, "head_dim")
    wavelengths = 2 * np.pi * theta ** (np.arange(0, width, 2) / width)
    turns = _number(rope, "original_max_position_embeddings") / wavelengths
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
