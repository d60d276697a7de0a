"""How a config field is declared: a default plus what help, checks and resume need to know about it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mudd_core.base.types import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Scalar = int | float | bool | str
Field = TypeVar("Field", bound=Scalar)
Section = TypeVar("Section", bound="DataclassInstance")


LARGEST = 2**31 - 1  # largest width, and largest value of an int field that has no bound of its own
LONGEST = 1_600_000  # tokens of a sequence: up to here angles of positions are reduced exactly (base/math.h)


def opt(
    default: Field,
    text: str,
    unit: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    free: bool = False,
    later: bool = False,
    flags: tuple[str, ...] = (),
    effect: str = "logits",
) -> Field:
    """Declare a config field: its default and what help, checks and resume need.

    text: its meaning, one sentence. unit: what the number counts. low, high: inclusive bounds. choices: the accepted
    strings. free: the field may change on resume. later: the field is newer than some saved runs, so the config hash
    leaves it out while it has its default. flags: names beside its own that the command line takes (`--<flag> VALUE`).
    effect: what a model's field decides: logits, training (losses or gradients alone) or start (initial weights alone).
    """
    return dataclasses.field(
        default=default,
        metadata={
            "text": text,
            "unit": unit,
            "low": low,
            "high": high,
            "choices": choices,
            "free_on_resume": free,
            "later": later,
            "flags": flags,
            "effect": effect,
        },
    )


@dataclass(frozen=True)
class FieldInfo:
    """One leaf of the config tree."""

    path: str  # "train.steps"
    kind: type  # int, float, bool or str
    value: Scalar
    text: str
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    free_on_resume: bool
    flags: tuple[str, ...]
    hashed: bool  # counts in config_hash


_hints: dict[type, dict[str, type]] = {}


def _types(cls: type) -> dict[str, type]:
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls)
    return _hints[cls]


def walk(section: DataclassInstance, prefix: str = "") -> Iterator[FieldInfo]:
    """Every leaf of a (nested) config dataclass instance, in declaration order.

    A class names inherited fields that are newer than some of its saved runs in `later_fields`. It names free fields
    that its other values bind to the training in `bound_fields`.
    """
    bound = getattr(section, "bound_fields", ())
    for info in _leaves(section, prefix):
        yield dataclasses.replace(info, free_on_resume=False, hashed=True) if info.path in bound else info


def _leaves(section: DataclassInstance, prefix: str) -> Iterator[FieldInfo]:
    kinds = _types(type(section))
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        path = prefix + field.name
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from walk(value, path + ".")
            continue
        meta = field.metadata
        later = meta.get("later") or field.name in getattr(section, "later_fields", ())
        own = field.name == "family" and vars(type(section)).get(
            "registered_name"
        )  # the user's (register_family)
        yield FieldInfo(
            path=path,
            kind=kinds[field.name],
            value=value,
            text=meta.get("text", ""),
            unit=meta.get("unit", ""),
            low=meta.get("low"),
            high=meta.get("high"),
            choices=(own,) if own else meta.get("choices", ()),
            free_on_resume=meta.get("free_on_resume", False),
            flags=meta.get("flags", ()),
            hashed=not (meta.get("free_on_resume") or (later and value == field.default)),
        )


def with_defaults(section: Section, names: Iterable[str]) -> Section:
    """A copy of the config with these fields at their defaults."""
    declared = {field.name: field.default for field in dataclasses.fields(section)}
    return dataclasses.replace(section, **{name: declared[name] for name in names})


def replace_path(section: Section, path: str, value: Scalar) -> Section:
    """A copy of the config with the leaf at the dotted path set."""
    head, _, rest = path.partition(".")
    if rest:
        return dataclasses.replace(section, **{head: replace_path(getattr(section, head), rest, value)})
    return dataclasses.replace(section, **{head: value})


def with_fields(section: Section, values: Mapping[str, Json]) -> Section:
    """A copy of the section with these fields; the checks of configs look at their types."""
    return dataclasses.replace(section, **values)


def with_section(config: Section, name: str, value: DataclassInstance) -> Section:
    """A copy of the config with another section; the caller checks that it is one of the right kind."""
    return dataclasses.replace(config, **{name: value})
