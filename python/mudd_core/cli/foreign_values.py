"""Convert values of other programs' settings to values of the equivalent fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config import Config, find_config
from mudd_core.config.fields import FieldInfo
from mudd_core.config.mix import MIX, SOURCES, parse_weights
from mudd_core.config.overrides import parse_value
from mudd_core.config.tune import last_blocks
from mudd_core.run.store.saved_run import run_and_step

_TRUE = ("", "true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off", "none", "null")
_PRECISIONS = {
    **dict.fromkeys(("float32", "fp32", "float", "32", "32-true", "no", "highest"), "fp32"),
    **dict.fromkeys(("bfloat16", "float16", "half", "fp16", "bf16", "16", "auto", "o1", "o2"), "bf16"),
    **dict.fromkeys(("bf16-mixed", "16-mixed", "bf16-true", "16-true"), "bf16"),
}
_SCHEDULES = {
    "constant_with_warmup": "constant",
    "cosine_with_restarts": "cosine",
    "linear_decay": "linear",
    "cosine_with_min_lr": "cosine",
    "warmup_stable_decay": "wsd",
    "polynomial": "linear",
    **dict.fromkeys(("inv_sqrt", "rsqrt", "inverse_square_root"), "inverse_sqrt"),
}
_TRACKERS = {"wandb": "online", "all": "online", "tensorboard": "off"}


def is_true(value: str) -> bool | None:
    """Return whether a flag is on; None for a value that is neither on nor off."""
    low = value.lower()
    return True if low in _TRUE else False if low in _FALSE else None


def _precision(theirs: str, value: str) -> str | None:
    on = is_true(value) if theirs in ("fp16", "bf16", "amp") else None
    return ("bf16" if on else "fp32") if on is not None else _PRECISIONS.get(value.lower())


def _schedule(theirs: str, value: str) -> str | None:
    if theirs == "decay_lr":
        return {True: "cosine", False: "constant"}.get(bool(is_true(value)))
    return _SCHEDULES.get(value.lower(), value.lower())


def _optimizer(theirs: str, value: str) -> str | None:
    low = value.lower()
    return "adamw" if low.startswith("adam") and "pax" not in low else low


def _tracker(theirs: str, value: str) -> str | None:
    on = is_true(value)
    return _TRACKERS.get(value.lower(), value.lower()) if on is None else "online" if on else "off"


def _switch(theirs: str, value: str) -> str | None:
    on = True if theirs.startswith("remat") else is_true(value)
    return None if on is None else str(on).lower()


def _patience(theirs: str, value: str) -> str | None:
    on = None if value in ("0", "1") else is_true(value)
    return value if on is None else "3" if on else "0"


def _method(theirs: str, value: str) -> str | None:
    on = is_true(value)
    known = value.lower() if value.lower() in ("lora", "full") or last_blocks(value) else None
    return known if on is None else "lora" if on else "full"


def _layers(theirs: str, value: str) -> str | None:
    """Return names of linear layers for those of transformers: q,v for [q_proj,v_proj]; all for all-linear."""
    names = value.strip("[]()").replace("'", "").replace('"', "").replace(" ", "")
    return "all" if names in ("all-linear", "all") else names.replace("_proj", "")


def _text_path(theirs: str, value: str) -> str | None:
    return value if value and Path(value).exists() else None


def _weights(theirs: str, value: str) -> str | None:
    """Return weights that are written as in data.mix."""
    try:
        parse_weights(value)
    except ValueError:
        return None
    return value


def _until(theirs: str, value: str) -> str | None:
    return value.lower().removesuffix("_exhausted")


_FIELDS: dict[str, Callable[[str, str], str | None]] = {
    "train.precision": _precision,
    "optim.schedule": _schedule,
    "optim.name": _optimizer,
    "log.wandb": _tracker,
    "tune.method": _method,
    "lora.targets": _layers,
    "train.recompute": _switch,
    "train.patience": _patience,
    "data.mix": _weights,
    "data.mix_until": _until,
    "data.path": _text_path,
    "data.eval_path": _text_path,
}


def field_value(info: FieldInfo, theirs: str, value: str) -> str | None:
    """Return a field's value for the value of another program's setting; None if no value is equivalent."""
    convert = _FIELDS.get(info.path)
    found = value if convert is None else convert(theirs, value)
    if found is None or (found == "" and info.kind is not str):
        return None
    if info.choices and found not in info.choices:
        return None
    try:
        parse_value(info, found)
    except UserError:
        return None
    return found


def _config_name(theirs: str, value: str) -> str | None:
    try:
        find_config(value)
    except UserError:
        return None
    return value


def _folder(theirs: str, value: str) -> str | None:
    if theirs.startswith("resume"):
        return run_and_step(value)[0] if is_true(value) is None else ""
    return f"runs/{value}" if theirs == "run_name" and value else value or None


def _ranks(theirs: str, value: str) -> str | None:
    return ("" if value == "1" else value) if value.isdecimal() and int(value) > 0 else None


_OPTIONS: dict[str, Callable[[str, str], str | None]] = {
    "--config": _config_name,
    "--workdir": _folder,
    "--ranks": _ranks,
}


def option_value(option: str, theirs: str, value: str) -> str | None:
    """Return the value for a command-line option; empty if the option is not needed."""
    convert = _OPTIONS.get(option)
    return value if convert is None else convert(theirs, value)


def start_value(value: str) -> str | None:
    """Return start.load_parameters_path for nanoGPT's init_from; empty if a run starts or resumes without it."""
    return "" if value in ("scratch", "resume") else value if value and Path(value).exists() else None


RELATIVE = {"gradient_accumulation_steps", "grad_accum_steps", "accumulate_grad_batches", "grad_accumulation"}
RELATIVE |= {"warmup_ratio", "warmup_steps_fraction", "wsd_decay_steps_fraction", "min_lr"}


def relative_words(theirs: str, value: str, config: Config, *, typed_batch: bool) -> list[str] | None:
    """Return overrides for a setting that is relative to others in the config; None if no value is equivalent.

    typed_batch: the command sets the batch size, which is the size of one of the accumulated passes.
    """
    try:
        number = float(value)
    except ValueError:
        return None
    train = config.train
    if theirs == "min_lr":
        return (
            [f"optim.final_lr_ratio={number / config.optim.lr:.6g}"]
            if 0 <= number <= config.optim.lr
            else None
        )
    if theirs in ("warmup_ratio", "warmup_steps_fraction", "wsd_decay_steps_fraction"):
        steps = round(number * train.steps)
        field = "decay_steps" if theirs.startswith("wsd") else "warmup_steps"
        return [f"optim.{field}={steps}"] if 0 <= number < 1 and not train.epochs else None
    passes = int(number)
    if passes < 1 or passes != number or (not typed_batch and train.batch_size % passes):
        return None
    if passes == 1:
        return []
    if not typed_batch:
        return [f"train.micro_batch_size={train.batch_size // passes}"]
    return [f"train.batch_size={train.batch_size * passes}", f"train.micro_batch_size={train.batch_size}"]


def is_weight(value: str) -> bool:
    """Return whether a value is a weight of a mixture, such as 0.7."""
    try:
        parse_weights(f"source:{value}")
    except ValueError as error:
        return "at least one weight above 0" in str(error)
    return True


def blend_words(values: Sequence[str]) -> list[str] | None:
    """Return the fields of a mixture for Megatron-LM's `--data-path WEIGHT PREFIX WEIGHT PREFIX`; None for others.

    The sources are named after the last part of their paths, or by numbers if two would have the same name.
    """
    weights, paths = values[0::2], values[1::2]
    if not paths or len(weights) != len(paths) or not all(map(is_weight, weights)):
        return None
    names = [re.sub(r"[^A-Za-z0-9_-]", "_", path.rstrip("/").rpartition("/")[2])[:64] for path in paths]
    if len(set(names)) < len(names) or not all(names):
        names = [f"files{number}" for number in range(1, len(paths) + 1)]
    mix = ",".join(f"{name}:{weight}" for name, weight in zip(names, weights, strict=True))
    sources = [f"{SOURCES}.{name}.path={path}" for name, path in zip(names, paths, strict=True)]
    return ["data.pipeline=megatron", f"{MIX}={mix}", *sources]
