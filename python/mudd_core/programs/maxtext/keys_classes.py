"""The classes of MUDDFormer's program: settings that override the base file. A class inherits from its base class."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.programs.row import Value

# Without `steps`, which the base file also sets, so that the value in a user's file is used.
_LLAMA: dict[str, Value] = {
    "decoder_block": "llama2",
    "vocab_size": 32_000,
    "mlp_activations": ["silu", "linear"],
    "enable_dropout": False,
    "logits_via_embedding": False,
    "normalization_layer_epsilon": 1e-6,
    "rope_max_timescale": 10_000,
    "max_target_length": 2049,
    "log_period": 25,
    "scan_layers": True,
}
_LLAMA_MEDIUM = _LLAMA | {
    "base_emb_dim": 1024,
    "base_num_query_heads": 16,
    "base_num_kv_heads": 16,
    "base_mlp_dim": 2816,
    "base_num_decoder_layers": 24,
    "head_dim": 64,
    "learning_rate": 3e-4,
    "learning_rate_schedule_steps": 13_500,
    "warmup_steps_fraction": 0.01,
    "cosine_learning_rate_final_fraction": 0.1,
    "per_device_batch_size": 8.0,
}
_2_MEDIUM = _LLAMA_MEDIUM | {
    "vocab_size": 50_432,
    "per_device_batch_size": 32.0,
    "eval_per_device_batch_size": 32.0,
    "dataset_type": "pile",
    "iter_file_nums": 2,
    "train_shuffle_buffer_size": None,
    "eval_shuffle_buffer_size": None,
    "adam_b1": 0.9,
    "adam_b2": 0.95,
    "adam_eps": 1e-8,
    "adam_weight_decay": 0.1,
    "eval_interval": 13_500,
    "eval_loop_num_batches": 162,
    "enable_checkpointing": True,
    "checkpoint_period": 500,
    "keep_period": 1000,
    "scan_layers": False,
}
CLASSES: Mapping[str, Mapping[str, Value]] = {
    "LlamaMedium": _LLAMA_MEDIUM,
    "Llama2Medium": _2_MEDIUM,
    "MUDDLlama2Medium": _2_MEDIUM
    | {
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
    },
    "Llama": _LLAMA,
}
