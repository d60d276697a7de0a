"""Keys of MaxText's forks about the training: its length, batch, optimizer, validation and checkpoints."""

from __future__ import annotations

from mudd_core.config.fields import Scalar
from mudd_core.config.keys.row import COMMAND, Row, Value, Values, mapped, refused
from mudd_core.config.values import number, whole

_NAME = "maxtext"
_MOST_SHARDS = 1024
TRAIN_BATCH, EVAL_BATCH = "per_device_batch_size", "eval_per_device_batch_size"
KEEP = "max_to_keep"  # null, which keeps all, where no file has it


def _number(value: Value) -> float:
    return number("", value, strings=False)


def _whole(value: Value) -> int:
    return whole("", value, strings=False)


def _count(value: Value) -> int:
    """A whole number; null and those below 0 stand for all, our 0."""
    return 0 if value is None else max(0, _whole(value))


def _lengths(values: Values) -> tuple[int, int]:
    """Steps and steps of the schedule; -1 takes the other."""
    steps, schedule = _whole(values["steps"]), values["learning_rate_schedule_steps"]
    schedule = -1 if schedule is None else _whole(schedule)
    if steps < 1 and schedule < 1:
        raise ValueError(
            f"expected steps or learning_rate_schedule_steps above 0, got {steps} and {schedule}"
        )
    return (schedule if steps == -1 else steps), (steps if schedule == -1 else schedule)


def _steps(values: Values) -> dict[str, Scalar]:
    return {"train.steps": _lengths(values)[0]}


def _schedule_steps(values: Values) -> dict[str, Scalar]:
    steps, schedule = _lengths(values)
    return {"optim.schedule_steps": 0 if schedule == steps else schedule}


def _warmup(values: Values) -> dict[str, Scalar]:
    fraction = 0.0 if values["use_constant_lr"] else _number(values["warmup_steps_fraction"])
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected a fraction from 0 to 1, got {fraction}")
    return {"optim.warmup_steps": int(_lengths(values)[1] * fraction), "optim.warmup": "zero"}


def _optimizer(values: Values) -> dict[str, Scalar]:
    name = values["opt_type"]
    if name not in ("adam_pax", "adamw", "sgd"):
        raise ValueError(f"expected adamw, adam_pax or sgd, got '{name}'")
    return {"optim.name": str(name)}


def _decay(values: Values) -> dict[str, Scalar]:
    decay = 0.0 if values["opt_type"] == "sgd" else _number(values["adam_weight_decay"])
    return {"optim.weight_decay": decay, "optim.decay": "all"}


def _momentum(values: Values) -> dict[str, Scalar]:
    return {"optim.momentum": 0.0 if values["momentum"] is None else _number(values["momentum"])}


def _schedule(values: Values) -> dict[str, Scalar]:
    """The shape of the rate; after a shorter schedule MUDDFormer's program holds the floor, TokenFormer's takes 0."""
    steps, schedule = _lengths(values)
    constant = bool(values["use_constant_lr"])
    zero = values["decoder_block"] in ("tokenformer", "gpt3") and not constant and schedule < steps
    return {
        "optim.schedule": "constant" if constant else "cosine",
        "optim.after_schedule": "zero" if zero else "final",
    }


def _batch(values: Values) -> dict[str, Scalar]:
    batch = _whole(values[TRAIN_BATCH])  # of all devices together, by now
    shards = min(_MOST_SHARDS, 1 << (batch.bit_length() - 1))
    return {
        "train.batch_size": batch,
        "train.logical_shards": shards,
        "train.micro_batch_size": batch // shards if batch % shards == 0 and shards > 1 else 0,
    }


def _accumulation(values: Values) -> dict[str, Scalar]:
    runs, sizes = _whole(values["gradient_accumulation_steps"]), _batch(values)
    if runs < 1:
        raise ValueError(f"expected a whole number from 1, got {runs}")
    batch, shards = int(sizes["train.batch_size"]), int(sizes["train.logical_shards"])
    if runs == 1 or shards % runs or batch % shards:
        return {}
    return {"train.micro_batch_size": batch // runs}


def _accumulation_note(values: Values) -> str:
    runs = _whole(values["gradient_accumulation_steps"])
    if runs == 1 or _accumulation(values):
        return ""
    return (
        f"gradient_accumulation_steps={runs}: no cut of the batch into runs of whole shards; the result is the same "
        "for every cut, and train.micro_batch_size chooses one"
    )


def _eval_batch(values: Values) -> dict[str, Scalar]:
    if values["dataset_type"] == "grain":
        return {}
    return {"eval.batch_size": _whole(values[EVAL_BATCH])}


def _eval_batches(values: Values) -> dict[str, Scalar]:
    theirs = [values[name] for name in ("eval_loop_num_batches", "eval_batch_num")]
    given = [_count(value) for value in theirs if value is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise ValueError("expected one of eval_loop_num_batches and eval_batch_num, got both")
    return {"eval.max_batches": given[0] if given else 0}


def _length(values: Values) -> dict[str, Scalar]:
    target_too = values["decoder_block"] == "llama2"  # there a record holds the last target too
    return {"train.seq_len": _whole(values["max_target_length"]) - target_too}


def _precision(values: Values) -> dict[str, Scalar]:
    names = {"bfloat16": "bf16", "float32": "fp32"}
    if values["dtype"] not in names:
        raise ValueError(f"expected bfloat16 or float32, got '{values['dtype']}'")
    return {"train.precision": names[str(values["dtype"])]}


def _start(values: Values) -> dict[str, Scalar]:
    weights, state = (str(values[name] or "") for name in ("load_parameters_path", "load_full_state_path"))
    if weights and state:
        raise ValueError("expected one of load_parameters_path and load_full_state_path, got both")
    found: dict[str, Scalar] = {"start.load_parameters_path": weights or state}
    return {**found, "start.keep_optimizer": True, "start.keep_step": True} if state else found


def _zeros(values: Values) -> dict[str, Scalar]:
    slots = values["decoder_block"] == "tokenformer"  # of other blocks nothing grows
    return {"start.grow_init": "zero_both"} if values["load_parameters_zero_init"] and slots else {}


def _loaded_slots(values: Values) -> dict[str, Scalar]:
    count = _whole(values["load_parameters_path_slot_number"])
    return {"start.load_parameters_path_slot_number": count} if count > 0 else {}


def _counted(name: str, default: Value, field: str, text: str = "") -> Row:
    return mapped(
        _NAME, name, default, field, text=text, convert=lambda values: {field: _count(values[name])}
    )


_dropout = "there is no dropout here: take dropout_rate=0"

TRAINING: tuple[Row, ...] = (
    mapped(
        _NAME, TRAIN_BATCH, 1.0, "train.batch_size", "train.logical_shards", "train.micro_batch_size",
        text="times --devices: sequences in an update, one a shard; a run of the graph takes one shard", convert=_batch,
    ),
    mapped(
        _NAME, "gradient_accumulation_steps", 1, "train.micro_batch_size", text="runs of the graph in an update",
        convert=_accumulation, note=_accumulation_note,
    ),
    mapped(
        _NAME, EVAL_BATCH, 1.0, "eval.batch_size", text="times --devices; not with grain",
        convert=_eval_batch,
    ),
    mapped(
        _NAME, "max_target_length", 4097, "train.seq_len", text="with decoder_block=llama2 one less", convert=_length
    ),
    mapped(_NAME, "steps", 10_000_000, "train.steps", text="-1 = learning_rate_schedule_steps", convert=_steps),
    mapped(_NAME, "learning_rate", 3e-4, "optim.lr"),
    mapped(
        _NAME, "learning_rate_schedule_steps", 440_000, "optim.schedule_steps", text="-1 = steps",
        convert=_schedule_steps,
    ),
    mapped(
        _NAME, "warmup_steps_fraction", 0.005, "optim.warmup_steps", "optim.warmup",
        text="int(schedule x fraction) steps from a rate of 0", convert=_warmup,
    ),
    mapped(_NAME, "cosine_learning_rate_final_fraction", 0.1, "optim.final_lr_ratio"),
    mapped(
        _NAME, "use_constant_lr", False, "optim.schedule", "optim.after_schedule", text="without warm-up",
        convert=_schedule,
    ),
    mapped(_NAME, "opt_type", "adam_pax", "optim.name", convert=_optimizer),
    mapped(_NAME, "adam_b1", 0.9, "optim.beta1"),
    mapped(_NAME, "adam_b2", 0.95, "optim.beta2"),
    mapped(_NAME, "adam_eps", 1e-8, "optim.eps"),
    mapped(_NAME, "adam_eps_root", 0.0, "optim.eps_root"),
    mapped(
        _NAME, "adam_weight_decay", 0.1, "optim.weight_decay", "optim.decay", text="on every parameter; not with sgd",
        convert=_decay,
    ),
    mapped(_NAME, "momentum", 0.9, "optim.momentum", text="of sgd", convert=_momentum),
    mapped(_NAME, "nesterov", True, "optim.nesterov", text="of sgd"),
    mapped(_NAME, "gradient_clipping_threshold", 1.0, "optim.clip"),
    mapped(_NAME, "dtype", "bfloat16", "train.precision", convert=_precision),
    refused(_NAME, "weight_dtype", "float32", "weights and moments are fp32: take weight_dtype=float32"),
    Row(
        _NAME, "dropout_rate", 0.0, "refused", text=_dropout, allowed=(0,),
    ),
    mapped(
        _NAME, "enable_dropout", False, "model.drop_path", text="False: no drop_path in training; dropout_rate above 0 "
        "is refused in any case",
    ),
    mapped(_NAME, "init_weights_seed", 9876, "train.seed"),
    _counted("eval_interval", 500, "train.eval_every", "also at the last step"),
    mapped(_NAME, "eval_loop_num_batches", 66, "eval.max_batches", text="-1 = all", convert=_eval_batches),
    mapped(_NAME, "eval_batch_num", -1, "eval.max_batches", text="-1 = all", convert=_eval_batches),
    mapped(_NAME, "only_eval", False, COMMAND, text="the command validate; load_parameters_path goes before the run"),
    mapped(_NAME, "target_eval_loss", 0.0, "eval.target_loss"),
    mapped(
        _NAME, "eval_start_step", False, "eval.at_start",
        convert=lambda values: {"eval.at_start": bool(values["eval_start_step"])},
    ),
    mapped(_NAME, "enable_checkpointing", True, "train.save"),
    _counted("checkpoint_period", 250, "train.save_every"),
    _counted(KEEP, 4, "train.keep_last", "None = all"),
    _counted("keep_period", 1000, "train.keep_every", "None = no such step"),
    mapped(_NAME, "load_parameters_path", "", "start.load_parameters_path", convert=_start),
    mapped(
        _NAME, "load_full_state_path", "", "start.load_parameters_path", "start.keep_optimizer", "start.keep_step",
        convert=_start,
    ),
    mapped(
        _NAME, "load_parameters_path_slot_number", -1, "start.load_parameters_path_slot_number", convert=_loaded_slots
    ),
    mapped(
        _NAME, "load_parameters_zero_init", False, "start.grow_init",
        text="zero_both, whose new slots never learn: refused without start.force=true", convert=_zeros,
    ),
    mapped(
        _NAME, "log_period", 10, "log.flush_every", convert=lambda values: {
            "log.flush_every": max(1, _whole(values["log_period"]))
        },
    ),
    mapped(
        _NAME, "record_internal_nn_metrics", 1, "log.weights",
        text="mudd/* every fifth update, for one more forward pass",
        convert=lambda values: {"log.weights": bool(values["record_internal_nn_metrics"])},
    ),
    mapped(
        _NAME, "metrics_file", "", "log.metrics_file", text="of MUDDFormer a file, of TokenFormer a folder",
    ),
)  # fmt: skip
