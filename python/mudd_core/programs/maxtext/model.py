"""The model that the settings of a MaxText fork describe, without weights to read sizes from.

The settings are converted to tensor shapes, which the readers of weights (muddformer_jax, tokenformer_jax) then read.
So a setting means the same in a command and in a checkpoint.
"""

from __future__ import annotations

from dataclasses import fields, replace

from mudd_core.config import MixtralConfig, ModelConfig, MUDDFormerConfig, TransformerPPConfig
from mudd_core.config.families.experts import MOST_CHOSEN
from mudd_core.interop.settings import MOST_LAYERS, Reader, Settings
from mudd_core.programs.maxtext.muddformer_connections import shapes_of_settings
from mudd_core.programs.maxtext.muddformer_jax import MuddformerJax
from mudd_core.programs.maxtext.tokenformer_jax import TokenFormerJax

_BLOCKS = ("llama2", "tokenformer", "gpt3")


def model_of(settings: Settings) -> ModelConfig:
    """Return the model that the settings describe; null settings have the program's default.

    Raise ValueError that names a wrong setting. scan_layers is ignored, because layers are never stacked here.
    """
    config = {
        name: value
        for name, value in settings.items()
        if value is not None and name not in ("scan_layers", "param_scan_axis")
    }
    block = Reader("maxtext", config).choice("decoder_block", "llama2", _BLOCKS)
    read = Reader(
        "maxtext", {name: config.pop(name, None) for name in ("num_experts", "num_experts_per_tok")}
    )
    if block == "llama2":
        return _with_experts(MuddformerJax().model_config(config, _llama_shapes(config)), read)
    if read.whole("num_experts", 1, low=0) > 1:
        raise read.refusal(
            "num_experts", "1: only decoder_block=llama2 has experts", read.config["num_experts"]
        )
    del config["decoder_block"]
    return TokenFormerJax().model_config(config, _token_shapes(config, dense=block == "gpt3"))


def _with_experts(model: TransformerPPConfig | MUDDFormerConfig, read: Reader) -> ModelConfig:
    """Return the model with experts in place of its feed-forward parts; with 0 or 1 experts they stay dense."""
    count = read.whole("num_experts", 1, low=0)
    if count < 2:
        return model
    chosen = read.whole("num_experts_per_tok", 1, high=min(count, MOST_CHOSEN))
    if isinstance(model, MUDDFormerConfig):
        return replace(model, ffn_realloc=False, n_expert=count, top_k=chosen)
    shared = {field.name for field in fields(model)} & {field.name for field in fields(MixtralConfig)} - {
        "family"
    }
    dense = {name: getattr(model, name) for name in sorted(shared)}
    return MixtralConfig(**dense, n_expert=count, top_k=chosen, aux_coef=0.0)


def _llama_shapes(config: Settings) -> dict[str, tuple[int, ...]]:
    read = Reader("muddformer_jax", config)
    width, inner = read.whole("base_emb_dim"), read.whole("base_mlp_dim")
    heads, head = read.whole("base_num_query_heads"), read.whole("head_dim")
    layers = read.whole("base_num_decoder_layers", high=MOST_LAYERS)
    shapes = _outer(read, width)
    for layer in range(layers):
        shapes[f"decoder/layers_{layer}/mlp/wo/kernel"] = (inner, width)
    attention = "decoder/layers_0/self_attention/"
    shapes[f"{attention}query/kernel"] = (width, heads, head)
    shapes[f"{attention}key/kernel"] = (width, read.whole("base_num_kv_heads", heads), head)
    if read.flag("dense_conn"):
        shapes |= shapes_of_settings(read, width, layers)
    return shapes


def _token_shapes(config: Settings, *, dense: bool) -> dict[str, tuple[int, ...]]:
    read = Reader("tokenformer_jax", config)
    width, heads, head = (read.whole(name) for name in ("base_emb_dim", "base_num_query_heads", "head_dim"))
    if read.whole("base_num_kv_heads", heads) != heads:
        raise read.refusal(
            "base_num_kv_heads", f"{heads}, as base_num_query_heads", config["base_num_kv_heads"]
        )
    slots = 1 if dense else read.whole("slot_num")
    inner = read.whole("base_mlp_dim") if dense else 4 * slots
    shapes, first = _outer(read, width), "decoder/layers_0/self_attention/"
    for layer in range(read.whole("base_num_decoder_layers", high=MOST_LAYERS)):
        shapes[f"decoder/layers_{layer}/mlp/wi/kernel"] = (width, inner)
    if dense:
        shapes[f"{first}query/kernel"] = (width, heads, head)
    else:
        shapes[f"{first}qkv_key_slot/kernel"] = (width, 3, slots)
        shapes[f"{first}q_value_slot/kernel"] = (slots, heads * head)
        shapes[f"{first}proj_key_slot/kernel"] = (heads * head, slots)
    positions = read.whole("trainable_position_size", -1, low=-1)
    if positions > 0:
        shapes["decoder/position_embedder/embedding"] = (positions, width)
    return shapes


def _outer(read: Reader, width: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of embedding and head."""
    vocab = read.whole("vocab_size")
    shapes: dict[str, tuple[int, ...]] = {"token_embedder/embedding": (vocab, width)}
    if not read.flag("logits_via_embedding"):
        shapes["decoder/logits_dense/kernel"] = (width, vocab)
    return shapes
