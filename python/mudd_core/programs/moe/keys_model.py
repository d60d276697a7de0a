"""Keys of the model and the data in the benchmark's Hydra configs."""

from __future__ import annotations

from mudd_core.programs.moe import keys_values as values
from mudd_core.programs.row import mapped, noted

_G = "hydra"
# Keys that affect more than fields: the model's shape and its weights.
SHAPE, NAME, RANDOM = "model.config_path", "model.name_or_path", "model.random_init"

SHAPE_FIELDS = ("model.family", "model.d_model", "model.n_layer")
MODEL = (
    mapped(_G, SHAPE, None, *SHAPE_FIELDS, text="path of the model's config.json", convert=values.nothing),
    mapped(
        _G,
        NAME,
        "mistralai/Mixtral-8x7B-v0.1",
        "data.tokenizer",
        *SHAPE_FIELDS,
        text="sets the tokenizer; without model.config_path also the sizes and weights of the model",
        convert=values.text(NAME, "data.tokenizer"),
    ),
    mapped(
        _G,
        RANDOM,
        False,
        "start.load_parameters_path",
        text="true: do not load the weights of model.name_or_path",
        convert=values.nothing,
    ),
    mapped(_G, "model.capacity_factor", 0, "model.capacity_factor", convert=values.capacity),
    mapped(
        _G,
        "model.dtype",
        "bfloat16",
        "train.precision",
        text="weights and moments stay fp32",
        convert=values.precision,
    ),
    noted(_G, "model.max_sequence_length", 512, "max_length sets the sequence length"),
    noted(_G, "model.flash_attention", True, "attention is always fused"),
    noted(
        _G,
        "model.fsdp_config.fsdp_transformer_layer_cls_to_wrap",
        ["MixtralDecoderLayer"],
        "layers are not wrapped for FSDP",
    ),
    noted(_G, "model.fsdp_config.min_num_params", 0, "layers are not wrapped for FSDP"),
    noted(_G, "model.fsdp_config.xla_fsdp_grad_ckpt", True, "set train.recompute=true to save memory"),
)
DATA = (
    mapped(
        _G,
        "dataset.dataset_name",
        "c4_mlperf",
        "data.pipeline",
        "data.dataset",
        text="c4_mlperf: the files in the two folders below; another name: a dataset of the Hugging Face hub",
        convert=values.dataset,
    ),
    mapped(
        _G,
        "dataset.train_dataset_path",
        values.TRAIN_FOLDER,
        "data.path",
        convert=values.train_folder,
        note=values.folder_note("dataset.train_dataset_path", values.TRAIN_FOLDER),
    ),
    mapped(
        _G,
        "dataset.eval_dataset_path",
        values.EVAL_FOLDER,
        "data.eval_path",
        convert=values.eval_folder,
        note=values.folder_note("dataset.eval_dataset_path", values.EVAL_FOLDER),
    ),
    mapped(_G, "dataset.dataset_config_name", None, "data.dataset_config", convert=values.dataset_config),
    mapped(
        _G,
        "dataset.shuffle_buffer_size",
        256,
        "data.buffer",
        convert=values.whole("dataset.shuffle_buffer_size", "data.buffer"),
    ),
    noted(
        _G,
        "dataset.streaming",
        True,
        "data.cache=full tokenizes the data first, data.cache=stream during training",
    ),
    noted(_G, "dataset.num_proc", 1, "data.workers sets the number of processes that tokenize ahead"),
    noted(
        _G,
        "dataset.load_from_cache_file",
        True,
        "an existing token cache is always used if it matches the data and tokenizer",
    ),
)
