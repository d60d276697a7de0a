"""Declaration of config fields: a default, and metadata for help, checks and resume."""

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


LARGEST = 2**31 - 1  # largest width, and largest value of an int field without a bound
LONGEST = (
    1_600_000  # tokens of a sequence; up to this length, position angles are reduced exactly (base/math.h)
)


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
    """Declare a config field with its default and metadata for help, checks and resume.

    text: the meaning of the field, one sentence. unit: the unit of the value. low, high: inclusive bounds. choices: the
    accepted strings.
    free: the field may change on resume. later: the field is newer than some saved runs, so the config hash omits it
    while it has its default. flags: additional names on the command line (`--<flag> VALUE`). effect: the results that a
    model's field affects: logits, training (only losses or gradients) or start (only initial weights).
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
    """A leaf of the config tree: one field with its value."""

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
    hashed: bool  # True if config_hash includes the field


_hints: dict[type, dict[str, type]] = {}


def _types(cls: type) -> dict[str, type]:
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls)
    return _hints[cls]


def walk(section: DataclassInstance, prefix: str = "") -> Iterator[FieldInfo]:
    """Yield every leaf of a (nested) config dataclass instance, in declaration order.

    `later_fields` of a class names inherited fields that are newer than some of its saved runs. `bound_fields` of a
    class names free fields that, with the config's other values, may not change on resume.
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
        )  # a family of a user (register_family)
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
    """Return a copy of the config with these fields at their defaults."""
    declared = {field.name: field.default for field in dataclasses.fields(section)}
    return dataclasses.replace(section, **{name: declared[name] for name in names})


def replace_path(section: Section, path: str, value: Scalar) -> Section:
    """Return a copy of the config with a new value at the dotted path."""
    head, _, rest = path.partition(".")
    if rest:
        return dataclasses.replace(section, **{head: replace_path(getattr(section, head), rest, value)})
    return dataclasses.replace(section, **{head: value})


def with_fields(section: Section, values: Mapping[str, Json]) -> Section:
    """Return a copy of the section with these fields; types are checked later, with the config."""
    return dataclasses.replace(section, **values)


def with_section(config: Section, name: str, value: DataclassInstance) -> Section:
    """Return a copy of the config with another section; the caller checks that its type fits."""
    return dataclasses.replace(config, **{name: value})
