"""How values of the Hydra configs become values of our fields."""

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
_TOKENS_OF_A_RUN = 32768  # of the graph: more sequences go in several runs, whose sums are the same bits


def whole_of(keys: Keys, key: str, low: int | None = None) -> int:
    """A whole number; ValueError for anything else."""
    return values.whole(key, keys[key], low, strings=False)


def real_of(keys: Keys, key: str) -> float:
    """A finite number."""
    return values.number(key, keys[key], strings=False)


def flag_of(keys: Keys, key: str) -> bool:
    """True or false; null is false."""
    value = keys[key]
    return value is not None and values.flag(key, value, strings=False)


def text_of(keys: Keys, key: str) -> str:
    """A string, empty for null."""
    value = keys[key]
    if isinstance(value, bool | list | dict):
        raise values.mismatch(key, "a string", value)
    return "" if value is None else str(value)


def whole(key: str, field: str) -> Convert:
    """A whole number as it is."""
    return lambda keys: {field: whole_of(keys, key)}


def real(key: str, field: str) -> Convert:
    """A number as it is."""
    return lambda keys: {field: real_of(keys, key)}


def text(key: str, field: str) -> Convert:
    """A string as it is, null as the empty one."""
    return lambda keys: {field: text_of(keys, key)}


def flag(key: str, field: str) -> Convert:
    """A truth value as it is."""
    return lambda keys: {field: flag_of(keys, key)}


def nothing(keys: Keys) -> Fields:
    """Leave the fields to another key, or to the model and its folder."""
    return {}


def name(keys: Keys) -> Fields:
    """Name the run as the last folder of its work directory."""
    return {"name": text_of(keys, "exp_name").rstrip("/").rpartition("/")[2]}


def seeds(keys: Keys) -> Fields:
    """Give weights and order one seed."""
    seed = whole_of(keys, "seed", 0)
    return {"train.seed": seed, "data.seed": seed}


def profile(keys: Keys) -> Fields:
    """Trace one step; a number below 0: none."""
    step = whole_of(keys, "xla_profile_step")
    return {"train.profile": f"{step}:{step + 1}" if step >= 0 else ""}


def batch(keys: Keys) -> Fields:
    """The batch, cut into as many logical shards as divide it, at most one sequence each."""
    size = whole_of(keys, "global_train_batch_size", 1)
    return {"train.batch_size": size, "train.logical_shards": math.gcd(size, _MOST_SHARDS)}


def accumulation(keys: Keys) -> Fields:
    """Runs of the graph: so many a step, each with a mean of its own; one: as many as the memory asks for."""
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
    """AdamW with torch's betas, or SGD without a moment."""
    found = text_of(keys, "optimizer")
    if found in ("ADAMW_TORCH_XLA", "AdamW"):
        return {"optim.name": "adamw", "optim.beta1": 0.9, "optim.beta2": 0.999, "optim.eps": 1e-8}
    if found == "SGD":  # torch's L2 term is the same decay where there is no moment
        return {"optim.name": "sgd", "optim.momentum": 0.0}
    raise values.mismatch("", "ADAMW_TORCH_XLA, AdamW or SGD", keys["optimizer"])


def clip(keys: Keys) -> Fields:
    """The largest norm; 0 and less: any."""
    return {"optim.clip": 0.0 if keys["max_grad_norm"] is None else max(0.0, real_of(keys, "max_grad_norm"))}


def shuffle(keys: Keys) -> Fields:
    """On or off."""
    return {"data.shuffle": "on" if flag_of(keys, "shuffle") else "off"}


def precision(keys: Keys) -> Fields:
    """The type of activations."""
    kinds, given = {"bfloat16": "bf16", "float32": "fp32"}, text_of(keys, "model.dtype")
    if given not in kinds:
        raise values.mismatch("", "bfloat16 or float32", keys["model.dtype"])
    return {"train.precision": kinds[given]}


def full_precision(keys: Keys) -> str:
    """Raise ValueError for full matmuls of bfloat16 weights, which the program refuses too."""
    if flag_of(keys, "full_precision") and (given := text_of(keys, "model.dtype")) != "float32":
        raise ValueError(
            f"full_precision: expected model.dtype=float32 with full_precision=True, got {given}"
        )
    return ""


def schedule(keys: Keys) -> Fields:
    """The shape of the rate behind its warm-up."""
    kinds, kind = {"WarmupHoldPolicy": "constant", "CosineAnnealing": "cosine"}, text_of(keys, "sched.name")
    if kind not in kinds:
        raise values.mismatch("", " or ".join(kinds), keys["sched.name"])
    return {"optim.schedule": kinds[kind], "optim.warmup": "between"}


def schedule_length(keys: Keys) -> Fields:
    """Steps of the schedule; 0 where they are those of the run."""
    length = whole_of(keys, "sched.max_steps", 1)
    return {"optim.schedule_steps": 0 if length == whole_of(keys, "max_steps") else length}


def warmup_ratio(keys: Keys) -> Fields:
    """Steps of the warm-up as a fraction of the schedule."""
    if keys["sched.warmup_ratio"] is None:
        return {}
    if keys["sched.warmup_steps"] is not None:
        raise ValueError(
            "expected warmup_ratio or warmup_steps, got both; ~sched.warmup_ratio takes the steps"
        )
    ratio = real_of(keys, "sched.warmup_ratio")
    if not 0 <= ratio <= 1:
        raise values.mismatch("", "a number from 0 to 1", ratio)
    steps = int(ratio * whole_of(keys, "sched.max_steps", 1))
    return {"optim.warmup_steps": steps, "log.mllog_warmup": ratio}


def warmup_steps(keys: Keys) -> Fields:
    """Steps of the warm-up."""
    return (
        {}
        if keys["sched.warmup_steps"] is None
        else {"optim.warmup_steps": whole_of(keys, "sched.warmup_steps", 0)}
    )


def lowest_rate(keys: Keys) -> Fields:
    """The last rate over the peak."""
    lowest, peak = real_of(keys, "sched.min_lr"), real_of(keys, "lr")
    if not 0 <= lowest <= peak:
        raise values.mismatch("", f"a number from 0 to lr ({peak:g})", lowest)
    return {"optim.final_lr_ratio": lowest / peak if peak else 0.0}


def capacity(keys: Keys) -> Fields:
    """Slots of an expert over its fair share; 0 and less, and a model without experts: nothing is dropped."""
    factor = real_of(keys, "model.capacity_factor")
    return {"model.capacity_factor": factor} if factor > 0 else {}


def evaluation_period(keys: Keys) -> Fields:
    """Steps between evaluations; -1: so many that they take 24,576 x 2,048 tokens."""
    steps = whole_of(keys, "eval_frequency", -1)
    if steps == -1:
        tokens = whole_of(keys, "max_length", 1) * whole_of(keys, "global_train_batch_size", 1)
        steps = -(-_EVALUATION_TOKENS // tokens)
    return {"train.eval_every": steps}


_BENCHMARK = "c4_mlperf"


def documents(keys: Keys) -> Fields:
    """The first documents of the benchmark's validation set; null and 0: all, as of a data set of the hub."""
    count = 0 if keys["n_eval_examples"] is None else whole_of(keys, "n_eval_examples", 0)
    return {"eval.documents": count if keys["dataset.dataset_name"] == _BENCHMARK else 0}


def documents_note(keys: Keys) -> str:
    """Return the line about a limit that a data set of the hub does not have."""
    name, count = keys["dataset.dataset_name"], keys["n_eval_examples"]
    if name == _BENCHMARK or not count:
        return ""
    return (
        f"n_eval_examples={count}: read only with dataset={_BENCHMARK}; all documents of {name} are validated"
    )


def dataset(keys: Keys) -> Fields:
    """Blocks of joined documents: of the benchmark's two folders, or of a data set of the hub."""
    found = text_of(keys, "dataset.dataset_name")
    return {"data.pipeline": "blocks", "data.dataset": "" if found == _BENCHMARK else found}


def _folder(keys: Keys, key: str, field: str) -> Fields:
    return {field: text_of(keys, key) if keys["dataset.dataset_name"] == _BENCHMARK else ""}


def folder_note(key: str, default: str) -> Note:
    """The line about a folder beside a data set of the hub, which the benchmark's program does not read."""

    def note(keys: Keys) -> str:
        name = keys["dataset.dataset_name"]
        if name == _BENCHMARK or keys[key] in (None, "", default):
            return ""
        return f"{key}={keys[key]}: read only with dataset={_BENCHMARK}, not with {name}"

    return note


def train_folder(keys: Keys) -> Fields:
    """The folder of training files; none for a data set of the hub."""
    return _folder(keys, "dataset.train_dataset_path", "data.path")


def eval_folder(keys: Keys) -> Fields:
    """The folder of validation files; none for a data set of the hub."""
    return _folder(keys, "dataset.eval_dataset_path", "data.eval_path")


def dataset_config(keys: Keys) -> Fields:
    """The configuration of a data set of the hub."""
    return {"data.dataset_config": text_of(keys, "dataset.dataset_config_name")}
