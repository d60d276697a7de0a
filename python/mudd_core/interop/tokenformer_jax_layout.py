"""Where the parameters of a block lie in the JAX program for TokenFormer, and their shapes.

Layers are stacked along axis 1 of every tensor; keys lie as [d, ..., slots].
"""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.interop.layout import Entry

LAYERS = "decoder/layers/"
ATTENTION = LAYERS + "self_attention/"
_ALL = slice(None)


def slot_block(model: TokenFormerConfig, layer: int) -> Iterator[Entry]:
    """Parameters of a block of token-parameter attention, ours beside theirs."""
    ours, of_layer = f"blocks.{layer}.", (_ALL, layer)
    for i, name in enumerate("qkv"):
        key = f"{ours}attn.{name}.key"
        yield Entry(key, ATTENTION + "qkv_key_slot/kernel", index=(_ALL, layer, i, _ALL), axes=(1, 0))
        yield Entry(f"{ours}attn.{name}.value", f"{ATTENTION}{name}_value_slot/kernel", index=of_layer)
        if model.qkv_bias:
            yield Entry(f"{key}_bias", ATTENTION + "qkv_key_slot/bias", index=(i, layer))
            yield Entry(f"{ours}attn.{name}.value_bias", f"{ATTENTION}{name}_value_slot/bias", index=of_layer)
    for group, part, keys, values in (
        ("proj", "attn.o", ATTENTION + "proj_key_slot", ATTENTION + "proj_value_slot"),
        ("ffn", "ffn", LAYERS + "mlp/wi", LAYERS + "mlp/wo"),
    ):
        yield Entry(f"{ours}{part}.key", f"{keys}/kernel", index=of_layer, axes=(1, 0))
        yield Entry(f"{ours}{part}.value", f"{values}/kernel", index=of_layer)
        if getattr(model, f"{group}_bias"):
            yield Entry(f"{ours}{part}.key_bias", f"{keys}/bias", index=of_layer)
            yield Entry(f"{ours}{part}.value_bias", f"{values}/bias", index=of_layer)


def slot_shapes(model: TokenFormerConfig, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all blocks' tensors; width: of all heads."""
    d, layers, slots = model.d_model, model.n_layer, model.slots("qkv")
    proj, ffn = model.slots("proj"), model.slots("ffn")
    shapes: dict[str, tuple[int, ...]] = {
        ATTENTION + "qkv_key_slot/kernel": (d, layers, 3, slots),
        **{f"{ATTENTION}{name}_value_slot/kernel": (slots, layers, width) for name in "qkv"},
        ATTENTION + "proj_key_slot/kernel": (width, layers, proj),
        ATTENTION + "proj_value_slot/kernel": (proj, layers, d),
        LAYERS + "mlp/wi/kernel": (d, layers, ffn),
        LAYERS + "mlp/wo/kernel": (ffn, layers, d),
    }
    if model.qkv_bias:
        shapes[ATTENTION + "qkv_key_slot/bias"] = (3, layers, slots)
        shapes |= {f"{ATTENTION}{name}_value_slot/bias": (width, layers) for name in "qkv"}
    if model.proj_bias:
        shapes[ATTENTION + "proj_key_slot/bias"] = (proj, layers)
        shapes[ATTENTION + "proj_value_slot/bias"] = (d, layers)
    if model.ffn_bias:
        shapes |= {LAYERS + "mlp/wi/bias": (ffn, layers), LAYERS + "mlp/wo/bias": (d, layers)}
    return shapes


_DENSE_NORMS = {"attn.norm": "pre_self_attention_norm", "ffn.norm": "mlp/mlp_layer_norm"}
_DENSE_PARTS = {
    "attn.q": "self_attention/query", "attn.k": "self_attention/key", "attn.v": "self_attention/value",
    "attn.o": "self_attention/out", "ffn.up": "mlp/wi", "ffn.down": "mlp/wo",
}  # fmt: skip


def dense_block(model: TokenFormerConfig, layer: int) -> Iterator[Entry]:
    """Parameters of a block of the baseline, ours beside theirs."""
    ours, of_layer = f"blocks.{layer}.", (_ALL, layer)
    for part, theirs in _DENSE_NORMS.items():
        yield Entry(f"{ours}{part}.gain", f"{LAYERS}{theirs}/scale", index=of_layer)
        yield Entry(f"{ours}{part}.bias", f"{LAYERS}{theirs}/bias", index=of_layer)
    for part, theirs in _DENSE_PARTS.items():
        yield Entry(f"{ours}{part}.w", f"{LAYERS}{theirs}/kernel", index=of_layer)
        yield Entry(f"{ours}{part}.b", f"{LAYERS}{theirs}/bias", index=of_layer)


def dense_shapes(d: int, layers: int, heads: tuple[int, int], inner: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all blocks' tensors. heads: their number and the width of one."""
    count, width = heads
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _DENSE_NORMS.values():
        shapes |= {f"{LAYERS}{name}/scale": (d, layers), f"{LAYERS}{name}/bias": (d, layers)}
    for name in ("query", "key", "value"):
        shapes[f"{ATTENTION}{name}/kernel"] = (d, layers, count, width)
        shapes[f"{ATTENTION}{name}/bias"] = (count, layers, width)
    return shapes | {
        ATTENTION + "out/kernel": (count, layers, width, d),
        ATTENTION + "out/bias": (d, layers),
        LAYERS + "mlp/wi/kernel": (d, layers, inner),
        LAYERS + "mlp/wi/bias": (inner, layers),
        LAYERS + "mlp/wo/kernel": (inner, layers, d),
        LAYERS + "mlp/wo/bias": (d, layers),
    }
