"""Copies of a config with other values, for Config.replace and a dict of overrides."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from mudd_core.base.errors import UserError
from mudd_core.config.check import check_config, require_own_steps, type_fault
from mudd_core.config.families.crossed import crossed
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import FieldInfo, Scalar, replace_path, walk, with_section
from mudd_core.config.mix import MIX, PHASES, SOURCES, mapping_text, option_of, option_text
from mudd_core.config.overrides import (
    AnyConfig,
    field_path,
    in_asked_family,
    require_consistent,
    with_source_option,
)
from mudd_core.config.own_files import name_own
from mudd_core.config.own_optimizers import name_optimizers
from mudd_core.config.schema import Sections
from mudd_core.config.sections import section_of
from mudd_core.config.suggest import nearest_field
from mudd_core.config.values import KINDS, mismatch

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance

# A field's value; for a section its dataclass or a dict of its fields.
Value: TypeAlias = "Scalar | os.PathLike[str] | np.generic | DataclassInstance | Mapping[str, Value]"
Changes: TypeAlias = "Mapping[str, Value]"


def with_changes(config: AnyConfig, changes: Changes) -> AnyConfig:
    """Return the checked config with the fields of `changes` set in order: {"train.steps": 20, "model": {...}}.

    A dict of a section sets its fields; a dict of the model with a family creates a new model. Raise UserError with the
    field, the value and the nearest existing field.
    """
    before, touched, changed = config.model, set[str](), set[str]()
    for name, value in _leaves(changes):
        if name in _sections(config):
            config = with_section(config, name, _section(config, name, value))
            before = config.model if name == "model" else before
            continue
        if option_of(name) is not None:
            config = with_source_option(config, name, option_text(value))
            continue
        info = _field(config, name)
        name_own(info.path, str(value))
        name_optimizers(info.path, str(value))
        config = in_asked_family(config, str(value) if info.path == FAMILY else "")
        config = replace_path(config, info.path, _scalar(info, value))
        touched |= {info.path.removeprefix("model.")} if info.path.startswith("model.") else set()
        changed |= {info.path} if value != info.value else set()  # a dict may have all fields of a section
    require_consistent(config, before, touched)
    require_own_steps(config, changed)
    check_config(config)
    return config


def plain_values(config: Sections, changes: Changes) -> dict[str, Scalar]:
    """Return the values of fields by path in the fields' types; sections must be dicts. Raise UserError as above."""
    return {
        _field(config, name).path: _scalar(_field(config, name), value) for name, value in _leaves(changes)
    }


def override(path: str, value: Value) -> str:
    """Return the argument that sets a field: `train.save=false`."""
    return f"{path}={str(value).lower() if isinstance(value, bool) else value}"


def _leaves(changes: Changes, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield dotted paths and values; a model with a family stays one value."""
    for name, value in changes.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path in (MIX, PHASES, SOURCES):
            yield path, mapping_text(path, value)
        elif isinstance(value, Mapping) and not (path == "model" and "family" in value):
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _sections(config: Sections) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(config)
        if dataclasses.is_dataclass(getattr(config, field.name))
    ]


def _section(config: Sections, name: str, value: Value) -> DataclassInstance:
    """Return the new section. It has the same type as before; a model may be of any family."""
    wanted = type(getattr(config, name))
    found = section_of(wanted, value, name) if isinstance(value, Mapping) else value
    of_model = name == "model" and hasattr(found, "family")
    right = of_model or isinstance(found, wanted)
    if right and dataclasses.is_dataclass(found) and not isinstance(found, type):
        return found
    raise mismatch(f"[config] {name}", f"{wanted.__name__} or a dict of its fields", value)


def _field(config: Sections, name: str) -> FieldInfo:
    """Return the field of a dotted name, or of an alias with its section; raise UserError if there is none."""
    infos = {info.path: info for info in walk(config)}
    known = field_path(name, list(infos.values()))
    path = known if "." in name else name
    if path is None or path not in infos:
        if reason := crossed(config.model.family, name):
            raise UserError(f"[config] {reason}")
        raise UserError(
            f"[config] unknown field '{name}'{nearest_field(known or name, list(infos.values()))}"
        )
    return infos[path]


def _scalar(info: FieldInfo, value: Value) -> Scalar:
    """Return the value in the field's type: a NumPy scalar as a Python one, a path as a string."""
    item = getattr(value, "item", None)  # recognises NumPy scalars without importing NumPy
    plain = item() if callable(item) else value
    plain = os.fspath(plain) if isinstance(plain, os.PathLike) and info.kind is str else plain
    if not isinstance(plain, int | float | str):
        raise mismatch(f"[config] {info.path}", KINDS[info.kind], value)
    if fault := type_fault(dataclasses.replace(info, value=plain)):
        raise UserError(f"[config] {fault}")
    return plain
