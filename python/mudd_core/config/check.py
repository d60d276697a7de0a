"""Rules a config must keep before anything is written; one message for each broken rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.paths import url_fault
from mudd_core.base.storage import is_bucket, mapped, readable
from mudd_core.config.families import FAMILIES, ModelConfig, MupConfig
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import LARGEST, FieldInfo, walk
from mudd_core.config.groups import SPECS, parse_groups
from mudd_core.config.mesh_fit import mesh_faults
from mudd_core.config.own_files import split_name
from mudd_core.config.own_optimizers import KEY as OPTIMIZER
from mudd_core.config.own_optimizers import name_fault
from mudd_core.config.pipelines import asked_stream_faults, spec_of
from mudd_core.config.protocols import protocol_faults
from mudd_core.config.suggest import nearest
from mudd_core.config.train import profile_window, save_steps
from mudd_core.config.tune import tune_faults
from mudd_core.config.values import KINDS

if TYPE_CHECKING:
    from mudd_core.config.schema import Sections, StartConfig

_LARGEST_FLOAT = 3.4028234663852886e38  # of float32, in which the core computes
_MOST_TOKENS = 2**31 - 1  # of a batch: its ids are counted in 32 bits


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def shard_count(config: Sections) -> int:
    """Logical shards in use: train.logical_shards, capped at the largest power of two not above the batch."""
    return config.train.shard_count()


def type_fault(info: FieldInfo) -> str | None:
    """What is wrong with the type of a field's value, if anything is."""
    value, wanted = info.value, KINDS[info.kind]
    if info.kind is float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        right = type(value) is info.kind
    if not right:
        return f"{info.path}: expected {wanted}, got {value!r}"
    if isinstance(value, int) and value.bit_length() > 1000:  # no float holds it, and nobody wants to read it
        return f"{info.path}: expected {wanted} of at most 64 bits, got one of {value.bit_length()}"
    return None


def _field_fault(info: FieldInfo) -> str | None:
    if fault := type_fault(info):
        return fault
    value = info.value
    if isinstance(value, float) and not math.isfinite(value):
        return f"{info.path}: expected a finite number, got {value!r}"
    if isinstance(value, int | float) and info.kind is float and abs(value) > _LARGEST_FLOAT:
        return f"{info.path}: expected a number within float32 (up to {_LARGEST_FLOAT:.3g}), got {value!r}"
    if info.path == OPTIMIZER and isinstance(value, str) and (value in SPECS or split_name(value)):
        return name_fault(value)
    if info.path == FAMILY and value in FAMILIES and value not in info.choices:
        return (
            f"{info.path}: expected one of {', '.join(info.choices)}, which the config is of, got '{value}'; name a "
            f'config of that family (mc.list_configs()), or in Python replace all: {{"model": {{"family": "{value}"}}}}'
        )
    if info.choices and value not in info.choices:
        hint = nearest(str(value), info.choices)
        own = " or FILE.py:NAME" if info.path in (FAMILY, OPTIMIZER) else ""
        return f"{info.path}: expected one of {', '.join(info.choices)}{own}, got '{value}'{hint}"
    if isinstance(value, int | float):
        if info.low is not None and not value >= info.low:
            return f"{info.path}: expected at least {info.low:g}, got {value!r}"
        high = LARGEST if info.high is None and info.kind is int else info.high
        if high is not None and not value <= high:
            return f"{info.path}: expected at most {high}, got {value!r}"
    return None


def model_faults(model: ModelConfig) -> list[str]:
    """Broken rules of a model config on its own: of its fields, and between them where all fields are right."""
    return [fault for fault in map(_field_fault, walk(model, "model.")) if fault] or model.faults()


def _path_faults(config: Sections) -> list[str]:
    paths = {"data.cache_dir": mapped(config.data.cache_dir, config.storage.map)}
    source = readable(config.start.load_parameters_path, config.storage.map)
    if not is_bucket(source):  # the run there is fetched at the start
        paths["start.load_parameters_path"] = source
    return [f"{name}: {fault}" for name, path in paths.items() if (fault := url_fault(path))]


def _model_faults(config: Sections) -> list[str]:
    model = config.model
    faults = model.faults()
    if model.max_seq_len and config.train.seq_len > model.max_seq_len:
        faults.append(
            f"train.seq_len: expected at most model.max_seq_len ({model.max_seq_len}), "
            f"got {config.train.seq_len}"
        )
    return faults


def _start_faults(start: StartConfig) -> list[str]:
    faults = []
    if start.grow_init == "zero_both" and not start.force:
        faults.append(
            "start.grow_init: zero_both leaves new slots that can never learn (all their gradients are zero); "
            "take zero_keys, or set start.force=true"
        )
    if not start.load_parameters_path and (
        start.keep_optimizer or start.load_parameters_path_slot_number > 0
    ):
        faults.append("start.load_parameters_path: expected a path, as the other fields of start are set")
    if start.keep_step and not start.keep_optimizer:
        faults.append(
            "start.keep_step: expected start.keep_optimizer=true with it, as a run that goes on has both"
        )
    return faults


def _train_faults(config: Sections) -> list[str]:
    train, optim, faults = config.train, config.optim, []
    for name, windows in (("train", train.batch_size), ("eval", config.eval.batch_size)):
        if windows * train.seq_len > _MOST_TOKENS:
            faults.append(
                f"{name}.batch_size: expected at most {_MOST_TOKENS} tokens in a batch, got {windows} windows of "
                f"{train.seq_len} (train.seq_len)"
            )
    if not config.sample.top_p > 0:
        faults.append(f"sample.top_p: expected more than 0, got {config.sample.top_p!r}")
    shards = shard_count(config)
    if not _is_power_of_two(train.logical_shards):
        faults.append(f"train.logical_shards: expected a power of two, got {train.logical_shards}")
    if 0 < train.micro_batch_size < train.batch_size and train.batch_size % shards:
        faults.append(
            f"train.micro_batch_size: needs logical shards of equal size, but train.batch_size {train.batch_size} "
            f"is no multiple of the {shards} shards; take another batch size or train.micro_batch_size=0"
        )
    if 0 < optim.schedule_steps < optim.warmup_steps:
        faults.append(
            f"optim.schedule_steps: expected 0 or at least optim.warmup_steps ({optim.warmup_steps}), "
            f"got {optim.schedule_steps}"
        )
    if train.epochs and spec_of(config.data.pipeline).endless:
        faults.append(f"train.epochs: data.pipeline={config.data.pipeline} has no end; set train.steps")
    faults += _validation_faults(config)
    if config.eval.target_loss and not (train.eval_every or config.eval.every_tokens):
        faults.append(
            "eval.target_loss: needs validations on the way; set train.eval_every or eval.every_tokens"
        )
    if optim.rule != "sp" and not hasattr(config.model, "d_base"):
        faults.append(
            f"optim.rule: '{optim.rule}' needs a model with a base width (family mup), got {config.model.family}"
        )
    model = config.model
    if optim.rule == "mup" and isinstance(model, MupConfig) and model.d_model < model.d_base:
        faults.append(
            f"model.d_base: expected at most d_model ({model.d_model}) for optim.rule=mup, got {model.d_base}"
        )
    faults += _start_faults(config.start) + tune_faults(config)
    for name in ("beta1", "beta2", "momentum", "muon_momentum"):
        if getattr(optim, name) >= 1:
            faults.append(f"optim.{name}: expected less than 1, got {getattr(optim, name)!r}")
    if train.profile:
        try:
            if profile_window(train.profile)[0] >= train.steps:
                faults.append(
                    f"train.profile: expected FROM below train.steps ({train.steps}), got {train.profile!r}"
                )
        except ValueError as fault:
            faults.append(f"train.profile: {fault}")
    try:
        save_steps(train.save_at)
    except ValueError as fault:
        faults.append(f"train.save_at: {fault}")
    try:
        parse_groups(optim.groups)
    except ValueError as fault:
        faults.append(f"optim.groups: {fault}")
    return faults


def check_config(config: Sections, typed: Mapping[str, str] | None = None) -> None:
    """Raise UserError listing every broken rule; return nothing when all hold.

    typed: what messages call fields that a flag set, as typed_names gives it.
    """
    faults, unbuilt = [fault for fault in map(_field_fault, walk(config)) if fault], list[str]()
    if not faults:  # rules between fields need fields that are right by themselves
        unbuilt = mesh_faults(config)
        faults = (
            _model_faults(config)
            + _train_faults(config)
            + _path_faults(config)
            + protocol_faults(config)
            + asked_stream_faults(config)
            + _bad_record_faults(config)
        )
        if not config.name or "/" in config.name or config.name.startswith("."):
            faults.append(f"name: expected a plain folder name, got '{config.name}'")
    for path, name in (typed or {}).items():
        faults = [
            f"{name}{fault.removeprefix(path)}" if fault.startswith(f"{path}:") else fault for fault in faults
        ]
    if faults or unbuilt:
        raise UserError("\n".join([*(f"[config] {fault}" for fault in faults), *unbuilt]))


def _bad_record_faults(config: Sections) -> list[str]:
    """Return the fault of data.bad_records=drop for a pipeline without records."""
    data = config.data
    if data.bad_records == "fail" or spec_of(data.pipeline).has_records:
        return []
    return [
        f"data.bad_records: data.pipeline={data.pipeline} has no records that can be dropped; expected fail"
    ]


def _validation_faults(config: Sections) -> list[str]:
    """The faults of fields that compare validations."""
    train, faults = config.train, []
    periodic = train.eval_every or config.eval.every_tokens or train.epochs
    for name, is_set in (("patience", train.patience > 0), ("keep_best", train.keep_best)):
        if is_set and not periodic:
            faults.append(
                f"train.{name}: needs validations on the way; set train.eval_every or eval.every_tokens"
            )
    if train.keep_best and not train.save:
        faults.append("train.keep_best: needs checkpoints, but train.save=false writes none")
    return faults
