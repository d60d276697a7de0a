"""Sections of a config: created from fields by name, and never changed in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from mudd_core.base.errors import UserError
from mudd_core.config.families import FAMILIES, config_class_for_saved, named_family
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.own_files import name_own, split_name
from mudd_core.config.suggest import nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Assigned: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"

RENAMED = {"train.micro_batch"}  # fields of earlier versions, which the dataclass converts


def section_of(cls: type, raw: Mapping[str, object], path: str, *, saved: bool = False) -> object:
    """Return the dataclass of these fields; raise UserError for an unknown name. path: of the section, empty for the
    config.

    A model belongs to the family in `raw`, else to `cls`. saved: `raw` comes from a JSON file and runs no user file.
    """
    if path == "model" and "family" in raw:
        family = raw["family"]
        if not isinstance(family, str):
            raise UserError(f"[config] model.family: expected one of {', '.join(FAMILIES)}, got {family!r}")
        is_own = saved and split_name(family) is not None
        if saved and not is_own and family not in FAMILIES:
            raise UserError(
                f"[config] model.family: expected one of {', '.join(FAMILIES)} or FILE.py:NAME, got {family!r}; a "
                f"class of a notebook is registered before its run is opened: mc.register_family({family}, model)"
            )
        if not saved:
            name_own(FAMILY, family)
        cls = config_class_for_saved(family, raw) if is_own else named_family(family).config
    known = [field.name for field in dataclasses.fields(cls)]
    for name in raw:
        where = f"{path}.{name}" if path else str(name)
        if name not in known and where not in RENAMED:
            raise UserError(f"[config] unknown field '{where}'{nearest(str(name), known)}")
    return cls(**raw)


def explain_assignment(cls: type, section: str) -> None:
    """Make an assignment to a frozen dataclass raise an error that names `replace`. section: empty for Config."""

    def refuse(self: DataclassInstance, name: str, value: Assigned) -> NoReturn:
        path = f"{section}.{name}" if section else name
        given = repr(value) if isinstance(value, bool | int | float | str) else "..."
        raise FrozenInstanceError(
            f"[config] {path}: a config is not changed in place; type config = config.replace('{path}', {given})"
        )

    type.__setattr__(cls, "__setattr__", refuse)
