"""Keys of MaxText's forks for training: length, batch, optimizer, validation and checkpoints."""

from __future__ import annotations

from mudd_core.programs.maxtext import keys_training_values as of
from mudd_core.programs.maxtext.keys_training_values import EVAL_BATCH, TRAIN_BATCH
from mudd_core.programs.row import COMMAND, Row, Value, mapped, refused

_NAME = "maxtext"
KEEP = "max_to_keep"  # null, which keeps all checkpoints, if no file sets the key


def _counted(name: str, default: Value, field: str, text: str = "") -> Row:
    return mapped(
        _NAME, name, default, field, text=text, convert=lambda values: {field: of.count(values[name])}
    )


_dropout = "dropout is not supported: set dropout_rate=0"

TRAINING: tuple[Row, ...] = (
    mapped(
        _NAME,
        TRAIN_BATCH,
        1.0,
        "train.batch_size",
        "train.logical_shards",
        "train.micro_batch_size",
        text="batch_size is this value times --devices, logical_shards the largest power of two up to it; "
        "a micro-batch is one shard",
        convert=of.train_batch,
    ),
    mapped(
        _NAME,
        "gradient_accumulation_steps",
        1,
        "train.micro_batch_size",
        text="micro-batches per update",
        convert=of.accumulation,
        note=of.accumulation_note,
    ),
    mapped(
        _NAME,
        EVAL_BATCH,
        1.0,
        "eval.batch_size",
        text="eval.batch_size is this value times --devices; ignored with dataset_type=grain",
        convert=of.eval_batch,
    ),
    mapped(
        _NAME,
        "max_target_length",
        4097,
        "train.seq_len",
        text="with decoder_block=llama2, seq_len is one less, because the length includes the last target",
        convert=of.length,
    ),
    mapped(
        _NAME, "steps", 10_000_000, "train.steps", text="-1 = learning_rate_schedule_steps", convert=of.steps
    ),
    mapped(_NAME, "learning_rate", 3e-4, "optim.lr"),
    mapped(
        _NAME,
        "learning_rate_schedule_steps",
        440_000,
        "optim.schedule_steps",
        text="-1 = steps",
        convert=of.schedule_steps,
    ),
    mapped(
        _NAME,
        "warmup_steps_fraction",
        0.005,
        "optim.warmup_steps",
        "optim.warmup",
        text="warm-up of int(schedule steps x fraction) updates, from a learning rate of 0",
        convert=of.warmup,
    ),
    mapped(_NAME, "cosine_learning_rate_final_fraction", 0.1, "optim.final_lr_ratio"),
    mapped(
        _NAME,
        "use_constant_lr",
        False,
        "optim.schedule",
        "optim.after_schedule",
        text="True: constant learning rate without warm-up",
        convert=of.schedule,
    ),
    mapped(_NAME, "opt_type", "adam_pax", "optim.name", convert=of.optimizer),
    mapped(_NAME, "adam_b1", 0.9, "optim.beta1"),
    mapped(_NAME, "adam_b2", 0.95, "optim.beta2"),
    mapped(_NAME, "adam_eps", 1e-8, "optim.eps"),
    mapped(_NAME, "adam_eps_root", 0.0, "optim.eps_root"),
    mapped(
        _NAME,
        "adam_weight_decay",
        0.1,
        "optim.weight_decay",
        "optim.decay",
        text="applies to every parameter; ignored with opt_type=sgd",
        convert=of.decay,
    ),
    mapped(_NAME, "momentum", 0.9, "optim.momentum", text="used with opt_type=sgd", convert=of.momentum),
    mapped(_NAME, "nesterov", True, "optim.nesterov", text="used with opt_type=sgd"),
    mapped(_NAME, "gradient_clipping_threshold", 1.0, "optim.clip"),
    mapped(_NAME, "dtype", "bfloat16", "train.precision", convert=of.precision),
    refused(_NAME, "weight_dtype", "float32", "weights and moments are fp32: set weight_dtype=float32"),
    Row(
        _NAME,
        "dropout_rate",
        0.0,
        "refused",
        text=_dropout,
        allowed=(0,),
    ),
    mapped(
        _NAME,
        "enable_dropout",
        False,
        "model.drop_path",
        text="False: no drop_path in training; a dropout_rate above 0 is always refused",
    ),
    mapped(_NAME, "init_weights_seed", 9876, "train.seed"),
    mapped(
        _NAME,
        "eval_interval",
        500,
        "train.eval_every",
        "eval.off",
        text="updates between validations; the last update is also validated; 0 or less: no validation",
        convert=of.evaluation_period,
    ),
    mapped(
        _NAME,
        "eval_loop_num_batches",
        66,
        "eval.max_batches",
        text="-1 = all batches",
        convert=of.eval_batches,
    ),
    mapped(_NAME, "eval_batch_num", -1, "eval.max_batches", text="-1 = all batches", convert=of.eval_batches),
    mapped(
        _NAME,
        "only_eval",
        False,
        COMMAND,
        text="True: run the command validate, on load_parameters_path if set, else on the run",
    ),
    mapped(_NAME, "target_eval_loss", 0.0, "eval.target_loss"),
    mapped(
        _NAME,
        "eval_start_step",
        False,
        "eval.at_start",
        convert=lambda values: {"eval.at_start": bool(values["eval_start_step"])},
    ),
    mapped(_NAME, "enable_checkpointing", True, "train.save"),
    _counted("checkpoint_period", 250, "train.save_every"),
    _counted(KEEP, 4, "train.keep_last", "None = all"),
    _counted("keep_period", 1000, "train.keep_every", "None = never"),
    mapped(_NAME, "load_parameters_path", "", "start.load_parameters_path", convert=of.start),
    mapped(
        _NAME,
        "load_full_state_path",
        "",
        "start.load_parameters_path",
        "start.keep_optimizer",
        "start.keep_step",
        convert=of.start,
    ),
    mapped(
        _NAME,
        "load_parameters_path_slot_number",
        -1,
        "start.load_parameters_path_slot_number",
        convert=of.loaded_slots,
    ),
    mapped(
        _NAME,
        "load_parameters_zero_init",
        False,
        "start.grow_init",
        text="True: zero_both; new slots then never learn, so start.force=true is required",
        convert=of.zeros,
    ),
    mapped(
        _NAME,
        "log_period",
        10,
        "log.flush_every",
        convert=lambda values: {"log.flush_every": max(1, of.whole_of(values["log_period"]))},
    ),
    mapped(
        _NAME,
        "record_internal_nn_metrics",
        1,
        "log.weights",
        text="above 0: log mudd/* metrics every fifth update, with one more forward pass",
        convert=lambda values: {"log.weights": bool(values["record_internal_nn_metrics"])},
    ),
    mapped(
        _NAME,
        "metrics_file",
        "",
        "log.metrics_file",
        text="path of a file for MUDDFormer, of a folder for TokenFormer",
    ),
)
