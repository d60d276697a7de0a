"""Names and shapes of a block's parameters in the JAX program for TokenFormer (docs/maths/tokenformer.md, 6).

Layers have separate names here (programs/maxtext/weights.py stacks them); keys have the shape [d, ..., slots].
"""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.interop.layout import Entry

_ALL = slice(None)


def slot_block(model: TokenFormerConfig, layer: int) -> Iterator[Entry]:
    """Yield the parameters of a Pattention block."""
    ours, theirs = f"blocks.{layer}.", f"decoder/layers_{layer}/"
    attention = theirs + "self_attention/"
    for i, name in enumerate("qkv"):
        key = f"{ours}attn.{name}.key"
        yield Entry(key, attention + "qkv_key_slot/kernel", index=(_ALL, i), axes=(1, 0))
        yield Entry(f"{ours}attn.{name}.value", f"{attention}{name}_value_slot/kernel")
        if model.qkv_bias:
            yield Entry(f"{key}_bias", attention + "qkv_key_slot/bias", index=(i,))
            yield Entry(f"{ours}attn.{name}.value_bias", f"{attention}{name}_value_slot/bias")
    for group, part, keys, values in (
        ("proj", "attn.o", attention + "proj_key_slot", attention + "proj_value_slot"),
        ("ffn", "ffn", theirs + "mlp/wi", theirs + "mlp/wo"),
    ):
        yield Entry(f"{ours}{part}.key", f"{keys}/kernel", axes=(1, 0))
        yield Entry(f"{ours}{part}.value", f"{values}/kernel")
        if getattr(model, f"{group}_bias"):
            yield Entry(f"{ours}{part}.key_bias", f"{keys}/bias")
            yield Entry(f"{ours}{part}.value_bias", f"{values}/bias")


def slot_shapes(model: TokenFormerConfig, width: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of one Pattention layer, by their names after the layer's prefix."""
    d, slots, proj, ffn = model.d_model, model.slots("qkv"), model.slots("proj"), model.slots("ffn")
    shapes: dict[str, tuple[int, ...]] = {
        "self_attention/qkv_key_slot/kernel": (d, 3, slots),
        **{f"self_attention/{name}_value_slot/kernel": (slots, width) for name in "qkv"},
        "self_attention/proj_key_slot/kernel": (width, proj),
        "self_attention/proj_value_slot/kernel": (proj, d),
        "mlp/wi/kernel": (d, ffn),
        "mlp/wo/kernel": (ffn, d),
    }
    if model.qkv_bias:
        shapes["self_attention/qkv_key_slot/bias"] = (3, slots)
        shapes |= {f"self_attention/{name}_value_slot/bias": (width,) for name in "qkv"}
    if model.proj_bias:
        shapes["self_attention/proj_key_slot/bias"] = (proj,)
        shapes["self_attention/proj_value_slot/bias"] = (d,)
    if model.ffn_bias:
        shapes |= {"mlp/wi/bias": (ffn,), "mlp/wo/bias": (d,)}
    return shapes


_DENSE_NORMS = {"attn.norm": "pre_self_attention_norm", "ffn.norm": "mlp/mlp_layer_norm"}
_DENSE_PARTS = {
    "attn.q": "self_attention/query",
    "attn.k": "self_attention/key",
    "attn.v": "self_attention/value",
    "attn.o": "self_attention/out",
    "ffn.up": "mlp/wi",
    "ffn.down": "mlp/wo",
}


def dense_block(model: TokenFormerConfig, layer: int) -> Iterator[Entry]:
    """Yield the parameters of a block of the baseline."""
    ours, theirs = f"blocks.{layer}.", f"decoder/layers_{layer}/"
    for part, name in _DENSE_NORMS.items():
        yield Entry(f"{ours}{part}.gain", f"{theirs}{name}/scale")
        yield Entry(f"{ours}{part}.bias", f"{theirs}{name}/bias")
    for part, name in _DENSE_PARTS.items():
        yield Entry(f"{ours}{part}.w", f"{theirs}{name}/kernel")
        yield Entry(f"{ours}{part}.b", f"{theirs}{name}/bias")


def dense_shapes(d: int, heads: tuple[int, int], inner: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of one dense layer, by their names after the layer's prefix."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _DENSE_NORMS.values():
        shapes |= {f"{name}/scale": (d,), f"{name}/bias": (d,)}
    for name in ("query", "key", "value"):
        shapes |= {f"self_attention/{name}/kernel": (d, *heads), f"self_attention/{name}/bias": heads}
    return shapes | {
        "self_attention/out/kernel": (*heads, d),
        "self_attention/out/bias": (d,),
        "mlp/wi/kernel": (d, inner),
        "mlp/wi/bias": (inner,),
        "mlp/wo/kernel": (inner, d),
        "mlp/wo/bias": (d,),
    }
