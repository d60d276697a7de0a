"""Keys of mu-Transformer: the fields of its config and the flags of its launcher."""

from __future__ import annotations

import dataclasses

from mudd_core.config.families.mup import MupConfig
from mudd_core.config.fields import Scalar
from mudd_core.programs.mu_transformer import keys_run as run
from mudd_core.programs.mu_transformer import keys_values as values
from mudd_core.programs.row import COMMAND, WORKDIR, Row, mapped, noted, refused

_G = "mu_transformer"
_CUT = "as a flag: n_mesh_rows x n_mesh_cols ranks with mesh.zero=3; in a config file: all started ranks"


def _same(name: str, default: Scalar, path: str, text: str = "") -> Row:
    """Build a key whose value is copied to one field."""
    return mapped(_G, name, default, path, text=text, convert=values.same(name, path, type(default)))


def _model() -> tuple[Row, ...]:
    """Return the model's keys, which have the names and the defaults of the config fields."""
    ours = MupConfig()
    defaults: dict[str, Scalar] = {
        field.name: getattr(ours, field.name) for field in dataclasses.fields(ours)
    }
    defaults["qk_scale"] = ours.scale
    named = [name for name in ("d_model", "n_layer", *values.MODEL_KEYS) if name != "ff_act_name"]
    return tuple(_same(name, defaults[name], f"model.{name}") for name in named)


_OLD = "name of ff_act_name before April 2024"
_SHAPE = (
    *_model(),
    mapped(_G, "ff_act_name", "relu", "model.ff_act_name", convert=values.new_activation),
    mapped(_G, "act_name", None, "model.ff_act_name", text=_OLD, convert=values.old_activation),
    mapped(
        _G,
        "act_square",
        False,
        "model.ff_act_name",
        text="before April 2024; true: squared relu, with act_name=relu",
        convert=values.old_activation,
    ),
    mapped(_G, "dtype", "bfloat16", "train.precision", text="float32 or bfloat16", convert=values.precision),
    noted(_G, "model_size", None, "this is only a name; d_model and n_layer set the size"),
    refused(
        _G,
        "param_dtype",
        "float32",
        "weights and moments are always fp32; dtype sets the type of activations",
    ),
)
_TRAINING = (
    mapped(
        _G,
        "tokens_per_global_batch",
        2**18,
        "train.batch_size",
        "train.logical_shards",
        text="batch_size = tokens_per_global_batch / sequence_len, which must be an integer",
        convert=values.batch,
    ),
    mapped(
        _G,
        "sequence_len",
        256,
        "train.seq_len",
        "model.max_seq_len",
        "train.batch_size",
        convert=values.batch,
    ),
    mapped(
        _G,
        "grad_acc_steps",
        1,
        "train.batch_size",
        "train.steps",
        "data.held_batch",
        text="k multiplies the batch by k and divides steps and periods by k; the held-out documents stay "
        "the same",
        convert=values.accumulation,
        note=values.accumulation_note,
    ),
    mapped(_G, "n_pretrain_step", 125000, "train.steps", convert=values.lengths),
    mapped(
        _G,
        "n_finetune_step",
        0,
        "train.steps",
        "optim.schedule_steps",
        text="more steps after the schedule, at its last learning rate",
        convert=values.lengths,
    ),
    mapped(_G, "n_warmup_step", 10000, "optim.warmup_steps", convert=values.lengths),
    mapped(_G, "n_print_step", 100, "train.log_every", convert=values.print_period),
    mapped(_G, "n_save_step", 5000, "train.save_every", "train.eval_every", convert=values.save_period),
    _same("n_eval_step", 100, "eval.max_batches"),
    mapped(
        _G,
        "no_checkpoint",
        False,
        "train.save",
        text="true: train.save=false",
        convert=lambda keys: {"train.save": not keys["no_checkpoint"]},
    ),
    _same("lr_base", 1.0, "optim.lr"),
    mapped(
        _G,
        "lr_max",
        None,
        "optim.lr",
        text="old name of lr_base; the original divided it by d_model",
        convert=values.same("lr_max", "optim.lr", float),
        note=values.lr_max_note,
    ),
    _same("lr_schedule_name", "linear", "optim.schedule"),
    _same("optim_name", "adamw", "optim.name"),
    _same("optim_rule", "mup", "optim.rule"),
    _same("optim_beta1", 0.9, "optim.beta1"),
    _same("optim_beta2", 0.95, "optim.beta2"),
    _same("optim_eps", 1e-8, "optim.eps"),
    _same("wd", 0.0, "optim.weight_decay"),
    mapped(_G, "use_iwd", False, "optim.decay_mode", text="true: independent", convert=values.decay_mode),
    _same("use_eps_scaling", False, "optim.eps_scaling"),
    _same("grad_clip", 1.0, "optim.clip"),
    mapped(
        _G,
        "is_sweep",
        False,
        COMMAND,
        text="true: write sweep.tsv and done.txt at the end of training; skip a finished run",
    ),
)
_DATA = (
    noted(_G, "hftr_tokenizer_name", "T5TokenizerFast", "the tokenizer's files define its class"),
    mapped(
        _G,
        "hftr_tokenizer_instance",
        "t5-base",
        "data.tokenizer",
        "model.vocab_size",
        convert=values.tokenizer,
    ),
    mapped(_G, "hfds_identifier", "c4", "data.dataset", "data.pipeline", convert=values.dataset),
    mapped(
        _G,
        "hfds_config",
        "en",
        "data.dataset_config",
        convert=lambda keys: {"data.dataset_config": values.text(keys, "hfds_config")},
    ),
    _same("hfds_datacol", "text", "data.column"),
    _same("hfds_buffer_size", 512, "data.buffer"),
    refused(_G, "n_ds_shard", 0, "one process reads all of the data", 1),
    noted(_G, "force_download", True, "files that are on this machine are never downloaded again"),
)
_LOGS = (
    _same("sow_intermediates", False, "log.activations", "mean size of every activation in each log record"),
    _same("sow_param_info", False, "log.weights", "size of each weight's update in each log record"),
    mapped(
        _G,
        "sampling_method",
        "nucleus",
        "sample.temperature",
        "sample.top_k",
        "sample.top_p",
        "sample.window",
        text="nucleus, topk or temp; the settings of the other two methods are ignored",
        convert=run.sampling,
    ),
    mapped(_G, "sampling_nucleus", 0.8, "sample.top_p", convert=run.sampling),
    mapped(
        _G, "sampling_topk", 20, "sample.top_k", text="used with sampling_method=topk", convert=run.sampling
    ),
    mapped(
        _G,
        "sampling_temp",
        0.1,
        "sample.temperature",
        text="used with sampling_method=temp",
        convert=run.sampling,
    ),
    mapped(_G, "sampling_max_len", 1024, "sample.max_tokens", convert=run.sampling),
    mapped(
        _G,
        "sampling_prompt_len",
        128,
        "sample.prompt_tokens",
        text="at most sequence_len - 1",
        convert=run.prompt_tokens,
    ),
)
_FLAGS = (
    mapped(_G, "n_mesh_rows", 128, *run.MESH_FIELDS, text=_CUT, convert=run.mesh, note=run.mesh_note),
    mapped(_G, "n_mesh_cols", 1, *run.MESH_FIELDS, text=_CUT, convert=run.mesh),
    mapped(_G, "mode", "train", COMMAND, text="train, validation, test or sample"),
    mapped(_G, "rng_seed", 0, "train.seed", convert=run.seed),
    mapped(_G, "seed", None, "train.seed", text="old name of rng_seed", convert=run.seed),
    mapped(
        _G,
        "rng_fold",
        False,
        "train.seed",
        text="true: mix tokens_per_global_batch, n_pretrain_step, d_model and n_layer into the seed",
        convert=run.seed,
    ),
    mapped(_G, "experiment_group", "default", WORKDIR, text="part of the run's folder name"),
    mapped(_G, "load_suffix", "", WORKDIR, text="end of the folder name of the run to read"),
    mapped(_G, "save_suffix", "", WORKDIR, text="end of the folder name of the run to write"),
    mapped(_G, "wb_enabled", False, "log.wandb", text="true: online", convert=values.tracker),
    mapped(_G, "wb_run", None, "log.wandb_run", "log.wandb", convert=values.tracker),
)

ROWS: tuple[Row, ...] = (*_SHAPE, *_TRAINING, *_DATA, *_LOGS, *_FLAGS)
