"""Conversion of mu-Transformer's keys to config fields."""

from __future__ import annotations

import math

from mudd_core.base.types import is_number
from mudd_core.config.families.mup import FUSED, POINTWISE, MupConfig
from mudd_core.config.fields import Scalar
from mudd_core.config.run_config import Config
from mudd_core.programs.row import Convert, Values

# Model settings that have the same name as the config field. Used for command lines and for weights (interop).
MODEL_KEYS = (
    "d_base",
    "d_head",
    "ff_multiple",
    "qk_scale",
    "kv_mqa",
    "rotary_base",
    "attn_act_name",
    "ff_act_name",
    "q_init",
    "r_init",
    "u_init",
    "e_norm",
    "qk_norm",
    "norm_eps",
    "norm_gains",
    "norm_gains_type",
    "proj_biases",
)
_DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
_MOST_SHARDS = 128  # the number in configs/mup
Fields = dict[str, Scalar]


def whole(values: Values, name: str, low: int = 0) -> int:
    """Return the value as an integer of at least `low`; raise ValueError otherwise."""
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name}: expected a whole number of at least {low}, got {value!r}")
    return value


def number(values: Values, name: str) -> float:
    """Return the value as a finite number."""
    value = values[name]
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return float(value)


def text(values: Values, name: str) -> str:
    """Return the value as a string; null is empty."""
    value = values[name]
    return "" if value is None else str(value)


def activation(name: str, square: bool) -> str:
    """Return mudd_core's name of a jax.nn activation. square: the field act_square, which existed before April 2024.

    celu is elu with the program's default alpha of 1. Raise ValueError with all names for an unknown one.
    """
    if square and name != "relu":
        raise ValueError(f"act_square: expected act_name relu, got {name!r}")
    name = "sqrelu" if square else {"swish": "silu", "hard_swish": "hard_silu", "celu": "elu"}.get(name, name)
    known = ("swiglu", *FUSED, *POINTWISE)
    if name not in known:
        raise ValueError(
            f"ff_act_name: expected one of {', '.join(known)}, swish, hard_swish, celu, got {name!r}; jax.nn of the "
            "program has no other that acts on one element"
        )
    return name


def keys_of(config: Config) -> dict[str, Scalar]:
    """Convert a config to the original's keys, for all keys that have a field."""
    model, train, optim = config.model, config.train, config.optim
    assert isinstance(model, MupConfig)
    schedule = optim.schedule_steps or train.steps
    return {
        **{name: getattr(model, name) for name in MODEL_KEYS},
        "qk_scale": model.scale,
        "d_model": model.d_model,
        "n_layer": model.n_layer,
        "sequence_len": train.seq_len,
        "tokens_per_global_batch": train.batch_size * train.seq_len,
        "n_pretrain_step": schedule,
        "n_finetune_step": train.steps - schedule,
        "n_warmup_step": optim.warmup_steps,
        "n_print_step": train.log_every,
        "n_save_step": train.save_every,
        "n_eval_step": config.eval.max_batches,
        "lr_base": optim.lr,
        "lr_schedule_name": optim.schedule,
        "optim_name": optim.name,
        "optim_rule": optim.rule,
        "optim_beta1": optim.beta1,
        "optim_beta2": optim.beta2,
        "optim_eps": optim.eps,
        "wd": optim.weight_decay,
        "use_iwd": optim.decay_mode == "independent",
        "use_eps_scaling": optim.eps_scaling,
        "grad_clip": optim.clip,
        "dtype": {ours: theirs for theirs, ours in _DTYPES.items()}[train.precision],
        "rng_seed": train.seed,
    }


def same(name: str, path: str, kind: type) -> Convert:
    """Return a conversion that copies the value to one field of this type."""

    def convert(values: Values) -> Fields:
        value = values[name]
        if kind is float:
            return {path: number(values, name)}
        if kind is int:
            return {path: whole(values, name)}
        if not isinstance(value, kind):
            wanted = "true or false" if kind is bool else "a string"
            raise ValueError(f"{name}: expected {wanted}, got {value!r}")
        return {path: bool(value) if kind is bool else str(value)}

    return convert


def batch(values: Values) -> Fields:
    """Return batch size and sequence length. Accumulating k batches becomes one batch that is k times as large."""
    length, tokens = whole(values, "sequence_len", 1), whole(values, "tokens_per_global_batch", 1)
    if tokens % length:
        raise ValueError(
            f"tokens_per_global_batch: expected a multiple of sequence_len ({length}), got {tokens}"
        )
    micro = whole(values, "grad_acc_steps", 1)
    size = tokens // length * micro
    shards = min(_MOST_SHARDS, size & -size)  # the largest power of two that divides the batch
    fields: Fields = {
        "train.batch_size": size,
        "train.seq_len": length,
        "model.max_seq_len": length,
        "train.logical_shards": shards,
    }
    if micro > 1:  # the program counts validation and held-out documents in batches, not in updates
        fields |= {"eval.batch_size": size // micro, "data.held_batch": size // micro}
    return fields


def _updates(values: Values, name: str) -> int:
    """Return steps or a period in updates. The program counts accumulated batches instead."""
    steps, micro = whole(values, name), whole(values, "grad_acc_steps", 1)
    if steps % micro:
        raise ValueError(f"{name}: expected a multiple of grad_acc_steps ({micro}), got {steps}")
    return steps // micro


def lengths(values: Values) -> Fields:
    """Return the total steps, the schedule's steps and the warm-up steps."""
    steps, more = _updates(values, "n_pretrain_step"), _updates(values, "n_finetune_step")
    return {
        "train.steps": steps + more,
        "optim.schedule_steps": steps if more else 0,
        "optim.warmup_steps": _updates(values, "n_warmup_step"),
    }


def print_period(values: Values) -> Fields:
    """Return the steps between two log lines."""
    return {"train.log_every": _updates(values, "n_print_step")}


def save_period(values: Values) -> Fields:
    """Return the steps between two validations, each with a save."""
    steps = _updates(values, "n_save_step")
    return {"train.save_every": steps, "train.eval_every": steps}


def profile(values: Values) -> Fields:
    """Return the traced steps: from the first save to the second, if the run reaches the first."""
    first, steps = _updates(values, "n_save_step"), _updates(values, "n_pretrain_step")
    return {"train.profile": f"{first}:{2 * first}" if 0 < first < steps else ""}


def accumulation(values: Values) -> Fields:
    """Return every field that depends on the accumulated batches."""
    return batch(values) | lengths(values) | print_period(values) | save_period(values)


def accumulation_note(values: Values) -> str:
    """Return a note about the meaning of a step if an update has several batches."""
    micro = values["grad_acc_steps"]
    if micro == 1:
        return ""
    return (
        f"grad_acc_steps={micro}: an update processes {micro} batches at once; steps and periods count updates, so "
        f"each is divided by {micro}"
    )


def precision(values: Values) -> Fields:
    """Return the compute type."""
    name = text(values, "dtype")
    if name not in _DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(_DTYPES)}, got '{name}'")
    return {"train.precision": _DTYPES[name]}


def decay_mode(values: Values) -> Fields:
    """Return whether weight decay is scaled by the learning rate of a weight."""
    return {"optim.decay_mode": "independent" if values["use_iwd"] else "coupled"}


def old_activation(values: Values) -> Fields:
    """Return the activation from act_name and act_square (before April 2024), or from ff_act_name without act_name."""
    if values["act_name"] is None:
        return {"model.ff_act_name": activation(text(values, "ff_act_name"), bool(values["act_square"]))}
    return {"model.ff_act_name": activation(text(values, "act_name"), bool(values["act_square"]))}


def new_activation(values: Values) -> Fields:
    """Return the activation by its current name."""
    return {"model.ff_act_name": activation(text(values, "ff_act_name"), False)}


def tokenizer(values: Values) -> Fields:
    """Return the tokenizer, which also sets the model's vocabulary size."""
    name = text(values, "hftr_tokenizer_instance")
    return {"data.tokenizer": name, "data.recipe_tokenizer": "", "model.vocab_size": 0}


def dataset(values: Values) -> Fields:
    """Return a hub dataset, with one sequence for each document."""
    return {
        "data.dataset": text(values, "hfds_identifier"),
        "data.dataset_config": text(values, "hfds_config"),
        "data.pipeline": "rows",
        "data.recipe_text": "",
    }


def tracker(values: Values) -> Fields:
    """Return the Weights & Biases fields; they are on if the run has a name."""
    on = bool(values["wb_enabled"] or values["wb_run"])
    return {"log.wandb": "online" if on else "off", "log.wandb_run": text(values, "wb_run")}


def lr_max_note(values: Values) -> str:
    """Return a note about the old name of the learning rate."""
    if values["lr_max"] is None:
        return ""
    return "lr_max is read as lr_base; the original divided it by d_model, which optim_rule=abs_mup does"
