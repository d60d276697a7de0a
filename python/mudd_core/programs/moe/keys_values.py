"""Conversion of the Hydra keys to config fields."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mudd_core.config import values
from mudd_core.config.fields import Scalar
from mudd_core.programs.row import Convert, Note
from mudd_core.programs.row import Values as Keys

Fields = Mapping[str, Scalar]

TRAIN_FOLDER = "gs://mlperf-llm-public2/c4/en_json/3.0.1"
EVAL_FOLDER = "gs://mlperf-llm-public2/c4/en_val_subset_json"
_EVALUATION_TOKENS = 24576 * 2048
_MOST_SHARDS = 256
# tokens of a micro-batch; larger batches are split, which does not change the bits of the sums
_TOKENS_OF_A_RUN = 32768


def whole_of(keys: Keys, key: str, low: int | None = None) -> int:
    """Return the value as an integer; raise ValueError for anything else."""
    return values.whole(key, keys[key], low, strings=False)


def real_of(keys: Keys, key: str) -> float:
    """Return the value as a finite number."""
    return values.number(key, keys[key], strings=False)


def flag_of(keys: Keys, key: str) -> bool:
    """Return true or false; null is false."""
    value = keys[key]
    return value is not None and values.flag(key, value, strings=False)


def text_of(keys: Keys, key: str) -> str:
    """Return the value as a string; null is empty."""
    value = keys[key]
    if isinstance(value, bool | list | dict):
        raise values.mismatch(key, "a string", value)
    return "" if value is None else str(value)


def whole(key: str, field: str) -> Convert:
    """Return a conversion that copies an integer to a field."""
    return lambda keys: {field: whole_of(keys, key)}


def real(key: str, field: str) -> Convert:
    """Return a conversion that copies a number to a field."""
    return lambda keys: {field: real_of(keys, key)}


def text(key: str, field: str) -> Convert:
    """Return a conversion that copies a string to a field; null is empty."""
    return lambda keys: {field: text_of(keys, key)}


def flag(key: str, field: str) -> Convert:
    """Return a conversion that copies a boolean to a field."""
    return lambda keys: {field: flag_of(keys, key)}


def nothing(keys: Keys) -> Fields:
    """Return no field, because another key or the model's folder sets it."""
    return {}


def name(keys: Keys) -> Fields:
    """Return the name of the run: the last folder of its work directory."""
    return {"name": text_of(keys, "exp_name").rstrip("/").rpartition("/")[2]}


def seeds(keys: Keys) -> Fields:
    """Use one seed for weights and data order."""
    seed = whole_of(keys, "seed", 0)
    return {"train.seed": seed, "data.seed": seed}


def profile(keys: Keys) -> Fields:
    """Trace one step; a negative value traces none."""
    step = whole_of(keys, "xla_profile_step")
    return {"train.profile": f"{step}:{step + 1}" if step >= 0 else ""}


def batch(keys: Keys) -> Fields:
    """Return the batch size, split into the largest power-of-two number of logical shards that divides it."""
    size = whole_of(keys, "global_train_batch_size", 1)
    return {"train.batch_size": size, "train.logical_shards": math.gcd(size, _MOST_SHARDS)}


def accumulation(keys: Keys) -> Fields:
    """Return the micro-batches of a step, each with a separate mean; for one, choose their size by memory."""
    size, steps = (
        whole_of(keys, "global_train_batch_size", 1),
        whole_of(keys, "gradient_accumulation_steps", 1),
    )
    if size % steps:
        raise values.mismatch("", f"a divisor of global_train_batch_size ({size})", steps)
    if math.gcd(size, _MOST_SHARDS) % steps:
        raise values.mismatch("", "a power of two", steps)
    if steps > 1:
        return {"train.micro_batch_size": size // steps, "loss.normalize": "micro_mean"}
    most = max(1, _TOKENS_OF_A_RUN // whole_of(keys, "max_length", 1))
    return {"train.micro_batch_size": 0 if size <= most else most, "loss.normalize": "valid"}


def optimizer(keys: Keys) -> Fields:
    """Return AdamW with torch's betas, or SGD without momentum."""
    found = text_of(keys, "optimizer")
    if found in ("ADAMW_TORCH_XLA", "AdamW"):
        return {"optim.name": "adamw", "optim.beta1": 0.9, "optim.beta2": 0.999, "optim.eps": 1e-8}
    if found == "SGD":  # without momentum, torch's L2 term equals weight decay
        return {"optim.name": "sgd", "optim.momentum": 0.0}
    raise values.mismatch("", "ADAMW_TORCH_XLA, AdamW or SGD", keys["optimizer"])


def clip(keys: Keys) -> Fields:
    """Return the gradient norm to clip at; 0 or less: no clipping."""
    return {"optim.clip": 0.0 if keys["max_grad_norm"] is None else max(0.0, real_of(keys, "max_grad_norm"))}


def shuffle(keys: Keys) -> Fields:
    """Return whether to shuffle: on or off."""
    return {"data.shuffle": "on" if flag_of(keys, "shuffle") else "off"}


def precision(keys: Keys) -> Fields:
    """Return the compute type."""
    kinds, given = {"bfloat16": "bf16", "float32": "fp32"}, text_of(keys, "model.dtype")
    if given not in kinds:
        raise values.mismatch("", "bfloat16 or float32", keys["model.dtype"])
    return {"train.precision": kinds[given]}


def full_precision(keys: Keys) -> str:
    """Raise ValueError for full_precision with bfloat16 weights, which the program refuses too."""
    if flag_of(keys, "full_precision") and (given := text_of(keys, "model.dtype")) != "float32":
        raise ValueError(
            f"full_precision: expected model.dtype=float32 with full_precision=True, got {given}"
        )
    return ""


def schedule(keys: Keys) -> Fields:
    """Return the schedule after the warm-up."""
    kinds, kind = {"WarmupHoldPolicy": "constant", "CosineAnnealing": "cosine"}, text_of(keys, "sched.name")
    if kind not in kinds:
        raise values.mismatch("", " or ".join(kinds), keys["sched.name"])
    return {"optim.schedule": kinds[kind], "optim.warmup": "between"}


def schedule_length(keys: Keys) -> Fields:
    """Return the steps of the schedule; 0 if equal to the steps of the run."""
    length = whole_of(keys, "sched.max_steps", 1)
    return {"optim.schedule_steps": 0 if length == whole_of(keys, "max_steps") else length}


def warmup_ratio(keys: Keys) -> Fields:
    """Return the warm-up steps from a fraction of the schedule."""
    if keys["sched.warmup_ratio"] is None:
        return {}
    if keys["sched.warmup_steps"] is not None:
        raise ValueError(
            "expected warmup_ratio or warmup_steps, got both; type ~sched.warmup_ratio to use warmup_steps"
        )
    ratio = real_of(keys, "sched.warmup_ratio")
    if not 0 <= ratio <= 1:
        raise values.mismatch("", "a number from 0 to 1", ratio)
    steps = int(ratio * whole_of(keys, "sched.max_steps", 1))
    return {"optim.warmup_steps": steps, "log.mllog_warmup": ratio}


def warmup_steps(keys: Keys) -> Fields:
    """Return the warm-up steps."""
    return (
        {}
        if keys["sched.warmup_steps"] is None
        else {"optim.warmup_steps": whole_of(keys, "sched.warmup_steps", 0)}
    )


def lowest_rate(keys: Keys) -> Fields:
    """Return the ratio of the last rate to the peak rate."""
    lowest, peak = real_of(keys, "sched.min_lr"), real_of(keys, "lr")
    if not 0 <= lowest <= peak:
        raise values.mismatch("", f"a number from 0 to lr ({peak:g})", lowest)
    return {"optim.final_lr_ratio": lowest / peak if peak else 0.0}


def capacity(keys: Keys) -> Fields:
    """Return the capacity factor of an expert; with 0 or less, or without experts, no token is dropped."""
    factor = real_of(keys, "model.capacity_factor")
    return {"model.capacity_factor": factor} if factor > 0 else {}


def evaluation_period(keys: Keys) -> Fields:
    """Return the steps between evaluations. With -1, an evaluation follows every 24,576 x 2,048 tokens."""
    steps = whole_of(keys, "eval_frequency", -1)
    if steps == -1:
        tokens = whole_of(keys, "max_length", 1) * whole_of(keys, "global_train_batch_size", 1)
        steps = -(-_EVALUATION_TOKENS // tokens)
    return {"train.eval_every": steps}


_BENCHMARK = "c4_mlperf"


def documents(keys: Keys) -> Fields:
    """Return the number of validation documents of the benchmark that are used; null or 0: all, as for hub datasets."""
    count = 0 if keys["n_eval_examples"] is None else whole_of(keys, "n_eval_examples", 0)
    return {"eval.documents": count if keys["dataset.dataset_name"] == _BENCHMARK else 0}


def documents_note(keys: Keys) -> str:
    """Return a note if the limit is set for a hub dataset, which ignores it."""
    name, count = keys["dataset.dataset_name"], keys["n_eval_examples"]
    if name == _BENCHMARK or not count:
        return ""
    return (
        f"n_eval_examples={count}: read only with dataset={_BENCHMARK}; all documents of {name} are validated"
    )


def dataset(keys: Keys) -> Fields:
    """Return the dataset: the benchmark's two folders or a hub dataset, as blocks of joined documents."""
    found = text_of(keys, "dataset.dataset_name")
    return {"data.pipeline": "blocks", "data.dataset": "" if found == _BENCHMARK else found}


def _folder(keys: Keys, key: str, field: str) -> Fields:
    return {field: text_of(keys, key) if keys["dataset.dataset_name"] == _BENCHMARK else ""}


def folder_note(key: str, default: str) -> Note:
    """Return a function that returns the note about a folder that a hub dataset does not use."""

    def note(keys: Keys) -> str:
        name = keys["dataset.dataset_name"]
        if name == _BENCHMARK or keys[key] in (None, "", default):
            return ""
        return f"{key}={keys[key]}: read only with dataset={_BENCHMARK}, not with {name}"

    return note


def train_folder(keys: Keys) -> Fields:
    """Return the folder of training files; empty for a hub dataset."""
    return _folder(keys, "dataset.train_dataset_path", "data.path")


def eval_folder(keys: Keys) -> Fields:
    """Return the folder of validation files; empty for a hub dataset."""
    return _folder(keys, "dataset.eval_dataset_path", "data.eval_path")


def dataset_config(keys: Keys) -> Fields:
    """Return the configuration of a hub dataset."""
    return {"data.dataset_config": text_of(keys, "dataset.dataset_config_name")}
