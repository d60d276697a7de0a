"""Checks of a config before anything is written: every field alone, then the rules between fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from mudd_core.base.errors import UserError
from mudd_core.base.types import is_number
from mudd_core.config.families import FAMILIES, ModelConfig
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.families.ngrams import ngram_faults
from mudd_core.config.fields import LARGEST, FieldInfo, walk
from mudd_core.config.mesh_fit import mesh_faults
from mudd_core.config.mix import SOURCES
from mudd_core.config.mix_rules import mix_faults
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.config.optim import SPECS
from mudd_core.config.own_files import split_name
from mudd_core.config.own_optimizers import KEY as OPTIMIZER
from mudd_core.config.own_optimizers import name_fault
from mudd_core.config.rules import data_faults, faults_between
from mudd_core.config.schema import Sections
from mudd_core.config.suggest import nearest
from mudd_core.config.values import KINDS

_LARGEST_FLOAT = 3.4028234663852886e38  # the largest value of float32, in which the core computes


def type_fault(info: FieldInfo) -> str | None:
    """Return the fault in the type of a field's value; None if there is none."""
    value, wanted = info.value, KINDS[info.kind]
    right = is_number(value) if info.kind is float else type(value) is info.kind
    if not right:
        return f"{info.path}: expected {wanted}, got {value!r}"
    # The value is too large for a float, and too long for a message.
    if isinstance(value, int) and value.bit_length() > 1000:
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
            f"{info.path}: expected one of {', '.join(info.choices)}, the family of this config, got '{value}'; name a "
            f"config of that family (mc.list_configs()), or in Python replace the whole section: "
            f'{{"model": {{"family": "{value}"}}}}'
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
    """Return the rules that a model config breaks.

    The rules between fields are checked only if every single field is valid.
    """
    return [fault for fault in map(_field_fault, walk(model, "model.")) if fault] or model.faults() + (
        ngram_faults(model) if model.ngram_rows else []
    )


def check_config(config: Sections, typed: Mapping[str, str] | None = None) -> None:
    """Raise UserError with all broken rules, if there are any.

    typed: the names of fields that flags set, for messages; see typed_names.
    """
    faults, unbuilt = _field_faults(config), list[str]()
    if not faults:  # rules between fields need valid fields
        unbuilt = mesh_faults(config)
        faults = faults_between(config)
        if config.data.mix or config.of_mixture:
            faults += mix_faults(config) or _source_faults(config)
    _require_none(faults, unbuilt, typed or {})


def require_own_steps(config: Sections, typed: Collection[str]) -> None:
    """Raise UserError if train.epochs would replace a number of steps that the user has set.

    typed: the paths of the fields that the user has set.
    """
    if config.train.epochs and "train.steps" in typed and not config.train.extend:
        raise UserError(
            f"[config] train.steps: train.epochs={config.train.epochs} sets the number of steps; add "
            "train.epochs=0, or use train.stop_at=N to stop earlier"
        )


def check_fields(config: Sections, typed: Mapping[str, str], rules: Callable[[Sections], list[str]]) -> None:
    """Raise UserError with the faults of single fields; if there are none, with the faults that `rules` returns.

    typed: as for check_config.
    """
    _require_none(_field_faults(config) or rules(config), [], typed)


def _field_faults(config: Sections) -> list[str]:
    return [fault for fault in map(_field_fault, walk(config)) if fault]


def _source_faults(config: Sections) -> list[str]:
    """Return the faults of each source of data.mix, whose options are fields of `data`."""
    faults: list[str] = []
    for name in source_names(config):
        source = source_config(config, name)
        found = [fault for fault in map(_field_fault, walk(source.data, "data.")) if fault] or data_faults(
            source
        )
        faults += [f"{SOURCES}.{name}.{fault.removeprefix('data.')}" for fault in found]
    return faults


def _require_none(faults: list[str], unbuilt: list[str], typed: Mapping[str, str]) -> None:
    """Raise UserError with the faults, which name fields as the user typed them, if there are any."""
    for path, name in typed.items():
        faults = [
            f"{name}{fault.removeprefix(path)}" if fault.startswith(f"{path}:") else fault for fault in faults
        ]
    if faults or unbuilt:
        raise UserError("\n".join([*(f"[config] {fault}" for fault in faults), *unbuilt]))
