"""Conversion of MaxText's training keys to config fields."""

from __future__ import annotations

from mudd_core.config.fields import Scalar
from mudd_core.config.values import number, whole
from mudd_core.programs.row import Value, Values

_MOST_SHARDS = 1024
TRAIN_BATCH, EVAL_BATCH = "per_device_batch_size", "eval_per_device_batch_size"


def real_of(value: Value) -> float:
    """Return the value as a finite number."""
    return number("", value, strings=False)


def whole_of(value: Value) -> int:
    """Return the value as an integer."""
    return whole("", value, strings=False)


def count(value: Value) -> int:
    """Return the value as an integer. null and negative values mean all, which is 0 in mudd_core."""
    return 0 if value is None else max(0, whole_of(value))


def lengths(values: Values) -> tuple[int, int]:
    """Return (steps of the run, steps of the schedule). A value of -1 is replaced by the other one."""
    steps, schedule = whole_of(values["steps"]), values["learning_rate_schedule_steps"]
    schedule = -1 if schedule is None else whole_of(schedule)
    if steps < 1 and schedule < 1:
        raise ValueError(
            f"expected steps or learning_rate_schedule_steps above 0, got {steps} and {schedule}"
        )
    return (schedule if steps == -1 else steps), (steps if schedule == -1 else schedule)


def steps(values: Values) -> dict[str, Scalar]:
    """Return the steps of the run."""
    return {"train.steps": lengths(values)[0]}


def schedule_steps(values: Values) -> dict[str, Scalar]:
    """Return the steps of the schedule; 0 if equal to the steps of the run."""
    steps, schedule = lengths(values)
    return {"optim.schedule_steps": 0 if schedule == steps else schedule}


def warmup(values: Values) -> dict[str, Scalar]:
    """Return the warm-up steps, a fraction of the schedule."""
    fraction = 0.0 if values["use_constant_lr"] else real_of(values["warmup_steps_fraction"])
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected a fraction from 0 to 1, got {fraction}")
    return {"optim.warmup_steps": int(lengths(values)[1] * fraction), "optim.warmup": "zero"}


def optimizer(values: Values) -> dict[str, Scalar]:
    """Return the optimizer."""
    name = values["opt_type"]
    if name not in ("adam_pax", "adamw", "sgd"):
        raise ValueError(f"expected adamw, adam_pax or sgd, got '{name}'")
    return {"optim.name": str(name)}


def decay(values: Values) -> dict[str, Scalar]:
    """Return the weight decay, which applies to every parameter."""
    decay = 0.0 if values["opt_type"] == "sgd" else real_of(values["adam_weight_decay"])
    return {"optim.weight_decay": decay, "optim.decay": "all"}


def momentum(values: Values) -> dict[str, Scalar]:
    """Return the momentum of SGD; null is 0."""
    return {"optim.momentum": 0.0 if values["momentum"] is None else real_of(values["momentum"])}


def schedule(values: Values) -> dict[str, Scalar]:
    """Return the schedule.

    After the end of the schedule, MUDDFormer's program keeps the last rate, and TokenFormer's program uses 0.
    """
    steps, schedule = lengths(values)
    constant = bool(values["use_constant_lr"])
    zero = values["decoder_block"] in ("tokenformer", "gpt3") and not constant and schedule < steps
    return {
        "optim.schedule": "constant" if constant else "cosine",
        "optim.after_schedule": "zero" if zero else "final",
    }


def train_batch(values: Values) -> dict[str, Scalar]:
    """Return the batch size and its shards."""
    batch = whole_of(values[TRAIN_BATCH])  # already multiplied by the number of devices
    shards = min(_MOST_SHARDS, 1 << (batch.bit_length() - 1))
    return {
        "train.batch_size": batch,
        "train.logical_shards": shards,
        "train.micro_batch_size": batch // shards if batch % shards == 0 and shards > 1 else 0,
    }


def accumulation(values: Values) -> dict[str, Scalar]:
    """Return the sequences of a micro-batch."""
    runs, sizes = whole_of(values["gradient_accumulation_steps"]), train_batch(values)
    if runs < 1:
        raise ValueError(f"expected a whole number from 1, got {runs}")
    batch, shards = int(sizes["train.batch_size"]), int(sizes["train.logical_shards"])
    if runs == 1 or shards % runs or batch % shards:
        return {}
    return {"train.micro_batch_size": batch // runs}


def accumulation_note(values: Values) -> str:
    """Return a note if gradient_accumulation_steps has no effect."""
    runs = whole_of(values["gradient_accumulation_steps"])
    if runs == 1 or accumulation(values):
        return ""
    return (
        f"gradient_accumulation_steps={runs}: this does not divide the batch into micro-batches of whole shards; "
        "the result is the same for every micro-batch size, which train.micro_batch_size sets"
    )


def eval_batch(values: Values) -> dict[str, Scalar]:
    """Return the batch size of a validation."""
    if values["dataset_type"] == "grain":
        return {}
    return {"eval.batch_size": whole_of(values[EVAL_BATCH])}


def evaluation_period(values: Values) -> dict[str, Scalar]:
    """Return the steps between validations. With 0 or less there is no validation, not even at the end."""
    steps = count(values["eval_interval"])
    return {"train.eval_every": steps, "eval.off": steps == 0}


def eval_batches(values: Values) -> dict[str, Scalar]:
    """Return the number of batches of a validation."""
    theirs = [values[name] for name in ("eval_loop_num_batches", "eval_batch_num")]
    given = [count(value) for value in theirs if value is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise ValueError("expected one of eval_loop_num_batches and eval_batch_num, got both")
    return {"eval.max_batches": given[0] if given else 0}


def length(values: Values) -> dict[str, Scalar]:
    """Return the number of targets of a sequence."""
    target_too = values["decoder_block"] == "llama2"  # in this program a record also contains the last target
    return {"train.seq_len": whole_of(values["max_target_length"]) - target_too}


def precision(values: Values) -> dict[str, Scalar]:
    """Return the precision."""
    names = {"bfloat16": "bf16", "float32": "fp32"}
    if values["dtype"] not in names:
        raise ValueError(f"expected bfloat16 or float32, got '{values['dtype']}'")
    return {"train.precision": names[str(values["dtype"])]}


def start(values: Values) -> dict[str, Scalar]:
    """Return the weights or the full state to start from."""
    weights, state = (str(values[name] or "") for name in ("load_parameters_path", "load_full_state_path"))
    if weights and state:
        raise ValueError("expected one of load_parameters_path and load_full_state_path, got both")
    found: dict[str, Scalar] = {"start.load_parameters_path": weights or state}
    return {**found, "start.keep_optimizer": True, "start.keep_step": True} if state else found


def zeros(values: Values) -> dict[str, Scalar]:
    """Return the initialization of new slots."""
    slots = values["decoder_block"] == "tokenformer"  # only this block has slots that can grow
    return {"start.grow_init": "zero_both"} if values["load_parameters_zero_init"] and slots else {}


def loaded_slots(values: Values) -> dict[str, Scalar]:
    """Return the number of slots that the loaded weights have."""
    count = whole_of(values["load_parameters_path_slot_number"])
    return {"start.load_parameters_path_slot_number": count} if count > 0 else {}
