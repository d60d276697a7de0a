"""Names of a model's parameters in MUDDFormer's MaxText program, with a separate name for each layer."""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.config.families import ModelConfig, MUDDFormerConfig, TransformerPPConfig

Names = Iterator[tuple[str, str]]  # (mudd_core's name, the program's name)
_PARTS = (
    ("attn.q", "self_attention/query"),
    ("attn.k", "self_attention/key"),
    ("attn.v", "self_attention/value"),
    ("attn.o", "self_attention/out"),
    ("ffn.gate", "mlp/wi_0"),
    ("ffn.up", "mlp/wi_1"),
    ("ffn.down", "mlp/wo"),
)


def block_names(model: MUDDFormerConfig | TransformerPPConfig, layer: int) -> Names:
    """Yield the names of the parameters of one block."""
    ours, theirs = f"blocks.{layer}.", f"decoder/layers_{layer}/"
    for name, part in _PARTS:
        yield f"{ours}{name}.w", f"{theirs}{part}/kernel"
    yield f"{ours}ffn.norm.gain", f"{theirs}post_self_attention_layer_norm/scale"
    single = isinstance(model, TransformerPPConfig) or model.single
    for c in ("",) if single else ("_q", "_k", "_v"):
        yield f"{ours}attn.norm{c}.gain", f"{theirs}pre_self_attention_layer_norm{c}/scale"


def mixing_names(model: MUDDFormerConfig) -> Names:
    """Yield the names of the connections' parameters."""
    if model.prenorm:
        yield "states.0.norm.gain", "decoder/mudd_prenorm/scale"
    for layer in range(model.n_layer):
        ours, theirs = f"blocks.{layer}.mix.", f"decoder/layers_{layer}/"
        yield f"{ours}w1", f"{theirs}dynamic_dense_conn1/kernel"
        yield f"{ours}w2", f"{theirs}dynamic_dense_conn2/kernel"
        yield f"{ours}bias", f"{theirs}dense_proj2.bias"
        if model.prenorm:
            yield f"{ours}gain", f"{theirs}pre_dense_proj1_norm/scale"
            yield f"states.{layer + 1}.norm.gain", f"decoder/mudd_prenorm_{layer}/scale"
        if model.postnorm:
            yield f"{ours}post_gain", f"decoder/mudd_postnorm_{layer}/scale"


def weight_names(model: ModelConfig) -> dict[str, str]:
    """Return the program's name of each parameter; empty for a family that the program lacks."""
    if not isinstance(model, MUDDFormerConfig | TransformerPPConfig):
        return {}
    names = {
        "embed": "token_embedder/embedding",
        "final_norm.gain": "decoder/decoder_norm/scale",
        "head": "decoder/logits_dense/kernel",
    }
    for layer in range(model.n_layer):
        names |= block_names(model, layer)
    if isinstance(model, MUDDFormerConfig) and model.mix != "none":
        names |= mixing_names(model)
    return names
