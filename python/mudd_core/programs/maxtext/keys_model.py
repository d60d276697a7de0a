"""Keys of MaxText's forks about the model.

mudd_core.programs.maxtext.model reads the value of each; it also reads the settings of loaded weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.types import is_number
from mudd_core.programs.row import Row, Value, Values, mapped, noted, refused

_NAME = "maxtext"
BLOCK = "decoder_block"  # determines which of the other keys exist
_SCALE = "global_parameter_scale"
_SCALES = [2**power for power in range(16)]


def _model(name: str, default: Value, field: str, text: str = "") -> Row:
    return mapped(_NAME, name, default, f"model.{field}", text=text)


MODEL: tuple[Row, ...] = (
    _model(BLOCK, "llama2", "family", "llama2, tokenformer, or gpt3 for the baseline in gpt2.yml"),
    _model("base_emb_dim", 4096, "d_model"),
    _model("base_num_query_heads", 32, "n_head"),
    _model("base_num_kv_heads", 32, "n_kv_head"),
    _model("base_mlp_dim", 5632, "d_ff", "ignored with decoder_block=tokenformer, which has slots instead"),
    _model("base_num_decoder_layers", 48, "n_layer"),
    _model("head_dim", 128, "d_head"),
    _model("vocab_size", 152_064, "vocab_size"),
    _model("mlp_activations", ["silu", "linear"], "mlp_activation"),
    mapped(
        _NAME,
        _SCALE,
        1,
        "model.d_model",
        "model.n_head",
        "model.n_kv_head",
        "model.d_ff",
        "model.n_layer",
        text="a power of two: 2 doubles heads and MLP width, 4 also doubles the model width, 8 also the "
        "layers",
    ),
    _model("logits_via_embedding", False, "tie_embeddings"),
    _model("normalize_embedding_logits", True, "normalize_logits", "used with tied embeddings"),
    _model("rope_max_timescale", 500_000, "rope_base"),
    refused(_NAME, "rope_min_timescale", 1, "RoPE wavelengths start at 1: set rope_min_timescale=1"),
    _model("normalization_layer_epsilon", 1e-6, "norm_eps"),
    refused(
        _NAME, "final_logits_soft_cap", None, "logits are not capped: set final_logits_soft_cap=None", 0, 0.0
    ),
    _model(
        "num_experts",
        1,
        "n_expert",
        "used with decoder_block=llama2; each expert has width base_mlp_dim; 1 = no experts",
    ),
    _model("num_experts_per_tok", 1, "top_k", "used if num_experts is above 1"),
    _model("dense_conn", None, "mix"),
    _model("dynamic_mlp_dim", None, "ffn_realloc"),
    _model("dynamic_dense_type", None, "streams", "qkvm or qkvr"),
    _model("dynamic_dense_act_cls", None, "activation"),
    _model("dynamic_dense_fix_last_layer", None, "last_norm", "True: one stream after the last layer"),
    _model("dynamic_dense_hidden_expand", None, "last_expand"),
    _model("dynamic_dense_hidden_round", None, "hidden_round"),
    noted(_NAME, "ddw_gen_pattern", None, "all streams are always computed together"),
    noted(_NAME, "ddw_gen_chunk_size", None, "sequences are never split into chunks"),
    _model("mudd_prenorm", None, "prenorm"),
    _model("mudd_postnorm", None, "postnorm"),
    _model("slot_num", None, "slot_num"),
    _model("normalize_type", None, "normalize_type"),
    _model("zoom_dim", None, "zoom_dim"),
    _model("qkv_scale_factor", None, "qkv_scale_factor"),
    _model("proj_scale_factor", None, "proj_scale_factor"),
    _model("ffn_scale_factor", None, "ffn_scale_factor"),
    _model("qkv_bias", None, "qkv_bias"),
    _model("proj_bias", None, "proj_bias"),
    _model("ffn_bias", None, "ffn_bias"),
    _model("drop_path", None, "drop_path", "used with enable_dropout=True"),
    _model("use_untrainable_positional_embedding", None, "positions", "True: add sinusoidal positions"),
    _model("trainable_position_size", None, "positions", "above 0: add learned positions"),
)


# Keys that the programs' files set but their models do not read, by block, with the values in these files.
_UNREAD: Mapping[str, Values] = {
    "llama2": {"use_untrainable_positional_embedding": False, "trainable_position_size": -1},
    "tokenformer": {"num_experts": 1, "num_experts_per_tok": 1, "rope_max_timescale": 10_000},
}


def is_default_of(block: str, name: str, value: Value) -> bool:
    """Return whether a block's model does not read a key, and the key has the value of the program's file."""
    unread = _UNREAD["llama2" if block == "llama2" else "tokenformer"]
    return (
        name in unread and value == unread[name] and isinstance(value, bool) == isinstance(unread[name], bool)
    )


def decides(name: str, value: Value) -> bool:
    """Return whether a model key with this value has an effect; global_parameter_scale=1 has none."""
    return name != _SCALE or value not in (None, 1)


def scaled(values: Values) -> dict[str, Value]:
    """Scale the base_* sizes by global_parameter_scale; raise ValueError unless it is a power of two."""
    scale, result = values.get(_SCALE), dict(values)
    if scale is None:
        return result
    if not is_number(scale) or scale not in _SCALES:
        raise ValueError(f"[{_NAME}] {_SCALE}: expected 1, 2, 4 or another power of two, got {scale!r}")
    thirds, rest = divmod(_SCALES.index(int(scale)), 3)
    for name, power in (
        ("base_emb_dim", thirds + (rest > 1)),
        ("base_num_query_heads", thirds + (rest > 0)),
        ("base_num_kv_heads", thirds + (rest > 0)),
        ("base_mlp_dim", thirds + (rest > 0)),
        ("base_num_decoder_layers", thirds),
    ):
        if isinstance(size := result.get(name), int | float):
            result[name] = size * 2**power
    result[_SCALE] = 1
    return result
