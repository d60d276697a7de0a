"""The settings that llama.cpp's programs of a model fix, as far as they depend on other settings."""

from __future__ import annotations

from mudd_core.base.types import JsonObject
from mudd_core.interop.gguf.fields import period_of, rope_of
from mudd_core.interop.hf_rows import size_of
from mudd_core.interop.hf_windows import FULL, SLIDING

_LAYERS_27B = 62  # llama.cpp recognizes Gemma 3 27B by its layers


def gemma3(settings: JsonObject) -> JsonObject:
    """Return periodic windows, and the scale of attention: head_dim, or hidden_size / heads for the 27B model."""
    width = size_of(settings, "head_dim")
    if size_of(settings, "num_hidden_layers") == _LAYERS_27B:
        width = size_of(settings, "hidden_size") // size_of(settings, "num_attention_heads")
    return {"query_pre_attn_scalar": width, **_periodic(settings)}


def smollm3(settings: JsonObject) -> JsonObject:
    """Return each fourth layer without rotary positions."""
    layers = size_of(settings, "num_hidden_layers")
    return {"no_rope_layers": [int((layer + 1) % 4 != 0) for layer in range(layers)]}


def square(settings: JsonObject) -> JsonObject:
    """Return heads that together have the width of the model."""
    return {"head_dim": size_of(settings, "hidden_size") // size_of(settings, "num_attention_heads")}


def olmo3(settings: JsonObject) -> JsonObject:
    """Return periodic windows with the RoPE theta of the other layers."""
    full, sliding = rope_of(settings), rope_of(settings, SLIDING)
    rope: JsonObject = {FULL: full, SLIDING: {**sliding, "rope_theta": full["rope_theta"]}}
    return {"rope_parameters": rope, **square(settings), **_periodic(settings)}


def _periodic(settings: JsonObject) -> JsonObject:
    """Return windows in all but each n-th layer."""
    layers, period = size_of(settings, "num_hidden_layers"), period_of(settings)
    return {"layer_types": [SLIDING if (layer + 1) % period else FULL for layer in range(layers)]}
