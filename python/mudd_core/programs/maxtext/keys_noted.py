"""Keys of MaxText's forks without effect in mudd_core, by reason, and refused keys that would change results."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.programs.row import Row, Value, noted, refused

_NAME = "maxtext"

# The default of each key in the program's own files.
_BY_REASON: Mapping[str, Mapping[str, Value]] = {
    "attention is always fused and causal; set train.recompute=true to save memory": {
        "attention": "dot_product",
        "fused_qkv": False,
        "fused_mlp": False,
        "compute_axis_order": "0,1,2,3",
        "reshape_q": False,
        "query_chunk_size": 512,
    },
    "in the original, only its DCFormer block reads this key": {
        "window_size": None,
        "num_layers_per_block": 1,
        "qk_norm": False,
        "mgate": False,
        "mgate_dim": 44,
        "pre_compose": False,
        "post_compose": False,
        "query_wise": False,
        "key_wise": False,
        "static_proj": False,
        "set_mask_by_eos": False,
    },
    "experts always run as one grouped GEMM, without padding (dropless)": {
        "megablox": False,
        "moe_matmul": False,
    },
    "embeddings are always looked up by index; the results are the same": {"use_iota_embed": False},
    "mudd_core has its own checkpoint format and options (docs/checkpoints.md)": {
        "enable_single_replica_ckpt_restoring": False,
        "enable_background_delete": True,
        "load_ocdbt": True,
        "save_ocdbt": True,
        "force_unroll": False,
        "enable_emergency_checkpoint": False,
        "local_checkpoint_directory": "",
        "local_checkpoint_period": 0,
        "enable_checkpoint_cloud_logger": False,
        "enable_checkpoint_standard_logger": False,
    },
    "logs and the config are in the run's folder, which base_output_directory=gs://... puts into a bucket": {
        "gcs_metrics": False,
        "save_config_to_gcs": False,
        "enable_goodput_recording": False,
        "use_vertex_tensorboard": False,
        "vertex_tensorboard_project": "",
        "vertex_tensorboard_region": "",
        "prometheus_port": 0,
    },
    "set train.profile=FROM:TO to write a trace": {
        "profiler": "",
        "upload_all_profiler_results": False,
        "skip_first_n_steps_for_profiler": 1,
        "profiler_steps": 5,
        "enable_jax_profiler": False,
        "jax_profiler_port": 9999,
    },
    "error messages always contain their place in the code": {
        "collect_stack_trace": False,
        "stack_trace_to_cloud": False,
        "stack_trace_interval_seconds": 600,
        "max_checkify": False,
    },
    "models are never compiled": {
        "compile_topology": "",
        "compile_topology_num_slices": -1,
        "compiled_trainstep_file": "",
        "jax_cache_dir": "~/jax_cache",
    },
    "the weights of layers are never stacked; the results are the same": {
        "scan_layers": True,
        "param_scan_axis": 1,
    },
    "the mesh has no named axes and no stages; --ranks=N trains with N processes": {
        "mesh_axes": [],
        "logical_axis_rules": [],
        "data_sharding": [],
        "num_slices": -1,
        "allow_split_physical_axes": False,
        "enable_single_controller": False,
        "num_layers_per_pipeline_stage": 1,
        "num_pipeline_repeats": -1,
        "num_pipeline_microbatches": -1,
        "scan_pipeline_iterations": True,
    },
    "every process reads its own part of the data": {"expansion_factor_real_data": -1},
    "in the original, only the training of a tokenizer reads this key": {"max_corpus_chars": 10_000_000},
    "every validation starts at the first batch": {"reset_for_eval": True},
    "dataset_type=tfds is not supported; set dataset_path or grain_train_files": {
        "dataset_name": "c4/en:3.0.1",
        "eval_dataset_name": "c4/en:3.0.1",
        "my_train_data": "",
        "my_eval_data": "",
    },
    "dataset_type=hf trains on dataset_path and validates on grain_eval_files": {
        "hf_path": "",
        "hf_data_dir": "",
        "hf_train_files": "",
        "hf_eval_split": "",
        "hf_eval_files": "",
    },
    "with hub.online=true, the environment variable HF_TOKEN is used": {"hf_access_token": ""},
    "a setting of the original's inference; launch.py sample generates text": {
        "max_prefill_predict_length": 64,
        "prompt": "I love to",
        "load_from_prefill_dir": False,
        "prefill_cache_dir": "",
        "autoregressive_decode_assert": "",
        "decode_sampling_strategy": "greedy",
        "decode_sampling_nucleus_p": -1,
        "decode_sampling_top_k": 0,
        "decode_sampling_temperature": 1.0,
        "inference_microbenchmark_prefill_lengths": "64,128,256,512,1024",
        "inference_microbenchmark_stages": "prefill,generate",
        "inference_microbenchmark_loop_iters": 10,
        "inference_microbenchmark_log_file_path": "",
        "inference_metadata_file": "",
        "prefill_cache_axis_order": "1,2,0,3",
        "ar_cache_axis_order": "1,2,0,3",
        "quantize_kvcache": False,
        "kv_quant_axis": "heads_and_dkv",
        "kv_quant_dtype": "int8",
    },
    "quantized checkpoints are neither read nor written": {
        "checkpoint_is_quantized": False,
        "save_quantized_params_path": "",
        "quantization_local_shard_count": -1,
    },
}

NOTED: tuple[Row, ...] = (
    *(noted(_NAME, key, value, reason) for reason, keys in _BY_REASON.items() for key, value in keys.items()),
    refused(_NAME, "quantization", "", "matmuls are not quantized: set quantization= (empty)"),
    refused(
        _NAME,
        "training_num_batches_to_skip",
        None,
        "a resumed run continues with its next batch: set training_num_batches_to_skip=None",
    ),
)
