"""A check for config fields that an export to another program would lose.

The settings that an export would write are read back as an import reads them. A field that changes logits is rejected
by name if it comes back with another value. A field that changes training only causes a note, and initial values are
ignored. So a new field of a family is rejected until a system supports it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from mudd_core.config import ModelConfig
from mudd_core.interop.settings import Settings
from mudd_core.interop.system import Shapes, System


def lost_fields(
    name: str, system: System[ModelConfig], model: ModelConfig, settings: Settings, shapes: Shapes
) -> list[str]:
    """Return a note for each training field that the settings do not contain.

    name: the name of the system. settings, shapes: the exported settings and shapes. Raise ValueError for a field that
    changes logits.
    """
    ours = model.settled()
    theirs = _read_back(name, system, model, settings, shapes).settled()
    notes = []
    for field in dataclasses.fields(ours):
        value, back = getattr(ours, field.name), getattr(theirs, field.name)
        effect = field.metadata["effect"]
        if _same(value, back) or effect == "start" or field.metadata["free_on_resume"]:
            continue
        if effect == "training":
            notes.append(
                f"model.{field.name}: the export cannot store {value!r} and has {back!r}, so that "
                "training there differs"
            )
            continue
        advice = system.advice.get(field.name, "")
        raise ValueError(
            f"[{name}] model.{field.name}: expected {back!r}, the only value of the other program, "
            f"got {value!r}" + (f"; {advice}" if advice else "")
        )
    return notes


def _read_back(
    name: str, system: System[ModelConfig], model: ModelConfig, settings: Settings, shapes: Shapes
) -> ModelConfig:
    found = system.model_config(dict(settings), shapes)
    same = found if type(found) is type(model) else system.in_family(found, model.family)
    if type(same) is not type(model):
        raise ValueError(f"[{name}] family: expected {found.family}, got {model.family}")
    return same


def spelled(name: str, field: str, spellings: Mapping[str, str], value: str) -> str:
    """Return the other program's name for a value of a field. spellings: other program's name -> mudd_core value.

    Raise ValueError, with the name of the field, if the other program has no such value.
    """
    found = next((theirs for theirs, ours in spellings.items() if ours == value), None)
    if found is None:
        known = ", ".join(sorted(set(spellings.values())))
        raise ValueError(
            f"[{name}] model.{field}: expected one of {known}, as the other program has, got {value!r}"
        )
    return found


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-12)
    return ours == theirs
