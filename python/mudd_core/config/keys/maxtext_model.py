"""Keys of MaxText's forks about the model, and the classes of MUDDFormer's base file.

The value of each goes to mudd_core.interop.maxtext_model, which reads settings of loaded weights too.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.config.keys.row import Row, Value, mapped, noted, refused

_NAME = "maxtext"
BLOCK = "decoder_block"  # decides which of the other keys there are


def _model(name: str, default: Value, field: str, text: str = "") -> Row:
    return mapped(_NAME, name, default, f"model.{field}", text=text)


MODEL: tuple[Row, ...] = (
    _model(BLOCK, "llama2", "family", "llama2, tokenformer or gpt3 (the baseline of gpt2.yml)"),
    _model("base_emb_dim", 2048, "d_model"),
    _model("base_num_query_heads", 16, "n_head"),
    _model("base_num_kv_heads", 16, "n_kv_head"),
    _model("base_mlp_dim", 7168, "d_ff", "not of decoder_block=tokenformer, whose slots count"),
    _model("base_num_decoder_layers", 16, "n_layer"),
    _model("head_dim", 128, "d_head"),
    _model("vocab_size", 32_000, "vocab_size"),
    _model("mlp_activations", ["silu", "linear"], "mlp_activation"),
    refused(_NAME, "global_parameter_scale", 1, "give the sizes themselves: base_emb_dim, base_mlp_dim, ..."),
    _model("logits_via_embedding", False, "tie_embeddings"),
    _model("normalize_embedding_logits", True, "normalize_logits", "of tied ones"),
    _model("rope_max_timescale", 500_000, "rope_base"),
    refused(_NAME, "rope_min_timescale", 1, "wavelengths begin at 1: take rope_min_timescale=1"),
    _model("normalization_layer_epsilon", 1e-6, "norm_eps"),
    refused(
        _NAME, "final_logits_soft_cap", None, "logits are not capped: take final_logits_soft_cap=None", 0, 0.0
    ),
    _model("num_experts", 1, "n_expert", "of decoder_block=llama2; each base_mlp_dim wide; 1 = dense"),
    _model("num_experts_per_tok", 1, "top_k", "with num_experts above 1"),
    noted(_NAME, "megablox", False, "all experts of a layer are one grouped GEMM here"),
    _model("dense_conn", None, "mix"),
    _model("dynamic_mlp_dim", None, "ffn_realloc"),
    _model("dynamic_dense_type", None, "streams", "qkvm or qkvr"),
    _model("dynamic_dense_act_cls", None, "activation"),
    _model("dynamic_dense_fix_last_layer", None, "last_norm", "one stream behind the last layer"),
    _model("dynamic_dense_hidden_expand", None, "last_expand"),
    _model("dynamic_dense_hidden_round", None, "hidden_round"),
    noted(_NAME, "ddw_gen_pattern", None, "streams are made together here whatever it groups"),
    noted(_NAME, "ddw_gen_chunk_size", None, "it cuts sequences for memory, which is not needed here"),
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
    _model("drop_path", None, "drop_path", "with enable_dropout"),
    _model("use_untrainable_positional_embedding", None, "positions", "sinusoidal ones are added"),
    _model("trainable_position_size", None, "positions", "above 0: learned ones are added"),
)

_LLAMA: dict[str, Value] = {
    "base_emb_dim": 1024,
    "base_num_query_heads": 16,
    "base_num_kv_heads": 16,
    "base_mlp_dim": 2816,
    "base_num_decoder_layers": 24,
    "head_dim": 64,
    "vocab_size": 32_000,
    "per_device_batch_size": 8.0,
}
_LLAMA2: dict[str, Value] = _LLAMA | {
    "vocab_size": 50_432,
    "per_device_batch_size": 32.0,
    "eval_per_device_batch_size": 32.0,
    "max_target_length": 2049,
    "dataset_type": "pile",
    "iter_file_nums": 2,
    "learning_rate_schedule_steps": 13_500,
    "warmup_steps_fraction": 0.01,
    "eval_interval": 13_500,
    "eval_loop_num_batches": 162,
    "checkpoint_period": 500,
    "log_period": 25,
    "scan_layers": False,
    "rope_max_timescale": 10_000,
}
CLASSES: Mapping[str, Mapping[str, Value]] = {
    "LlamaMedium": _LLAMA,
    "Llama2Medium": _LLAMA2,
    "MUDDLlama2Medium": {
        **_LLAMA2,
        "dense_conn": True,
        "dynamic_mlp_dim": True,
        "dynamic_dense_type": "qkvm",
        "dynamic_dense_act_cls": "gelu",
        "dynamic_dense_fix_last_layer": True,
        "dynamic_dense_hidden_expand": [*[1] * 23, 4],
        "dynamic_dense_hidden_round": True,
        "ddw_gen_pattern": "q,k,v,m",
        "ddw_gen_chunk_size": None,
        "mudd_prenorm": True,
        "mudd_postnorm": True,
    },
    "Llama7B": _LLAMA
    | {
        "base_emb_dim": 4096,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 32,
        "base_mlp_dim": 11_008,
        "base_num_decoder_layers": 32,
        "head_dim": 128,
        "per_device_batch_size": 1.0,
    },
}
