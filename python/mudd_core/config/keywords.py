"""Fields of a config as keyword arguments of Python: `train_steps=50` sets train.steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import ParamSpec, TypeVar

from mudd_core.base.errors import UserError
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import FieldInfo
from mudd_core.config.overrides import AnyConfig, field_path
from mudd_core.config.replaced import Changes, Value, override, plain_values, with_changes
from mudd_core.config.schema import Sections, fields_of_all
from mudd_core.config.suggest import foreign_name, nearest, nearest_field

P = ParamSpec("P")
R = TypeVar("R")
_MODEL = "model_"
_HOW = "; fields are section_field, such as train_steps=50"


def keyword(path: str) -> str:
    """Return the keyword of a field: `train_steps` for train.steps."""
    return path.replace(".", "_")


class _WithFields(Signature):
    """A signature with one keyword for each field; its text, which help() prints, is short."""

    @property
    def short(self) -> Signature:
        """The signature with `**fields`."""
        shown = [one for one in self.parameters.values() if one.default is not ...]
        fields = Parameter("fields", Parameter.VAR_KEYWORD, annotation="Value")
        return Signature([*shown, fields], return_annotation=self.return_annotation)

    def __str__(self) -> str:
        return str(self.short)

    def format(self, **options: int | None) -> str:
        return str(self)


def completed(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that accepts `**fields`, with a signature that names each field.

    IPython and notebooks complete the keywords of a signature; they do not read the stub files.
    """
    own = [one for one in signature(function).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    fields = [
        Parameter(keyword(info.path), Parameter.KEYWORD_ONLY, default=..., annotation=info.kind)
        for info in fields_of_all()
    ]
    vars(function)["__signature__"] = _WithFields(
        [*own, *fields], return_annotation=signature(function).return_annotation
    )
    return function


def replaced(
    config: AnyConfig, field: str | Changes | None, value: Value | None, fields: Mapping[str, Value]
) -> AnyConfig:
    """Return the copy that Config.replace documents."""
    changes = changes_of("replace", fields)
    if field is None and changes:
        return with_changes(config, changes)
    if isinstance(field, Mapping):
        if value is not None:
            raise TypeError(f"[config] replace: expected no value after a dict of fields, got {value!r}")
        return with_changes(config, {**field, **changes})
    if not isinstance(field, str):
        given = "nothing" if field is None else f"a {type(field).__name__}"
        raise TypeError(
            f"[config] replace: expected a field or a dict of fields, got {given}; type "
            'config.replace({"train.steps": 20})'
        )
    if value is None:
        raise UserError(
            f"[config] replace: expected a value for '{field}', got None; type "
            f'config.replace("{field}", VALUE) or config.replace({{"{field}": VALUE}})'
        )
    return with_changes(config, {field: value, **changes})


def changes_of(place: str, fields: Mapping[str, Value]) -> Changes:
    """Return the values by dotted field, for Config.replace. place: the function, for messages.

    With `model_family` the model's fields are a new section. Raise UserError with the nearest keyword for an unknown
    one.
    """
    infos = fields_of_all()
    paths = {keyword(info.path): info.path for info in infos}
    found: dict[str, Value] = {}
    for name, value in fields.items():
        if name not in paths and not name.startswith(_MODEL):  # a model of your own has other fields
            raise UserError(f"[{place}] unknown keyword '{name}'{_hint(name, infos) or _HOW}")
        found[paths.get(name, f"model.{name.removeprefix(_MODEL)}")] = value
    if FAMILY not in found:
        return found
    model = {path.removeprefix("model."): found.pop(path) for path in [*found] if path.startswith("model.")}
    return {**found, "model": model}


def override_words(place: str, fields: Mapping[str, Value]) -> list[str]:
    """Return the fields as overrides of a command whose base decides the model. Raise UserError for fields of it."""
    if wrong := [name for name in fields if name.startswith(_MODEL)]:
        raise UserError(f"[{place}] {wrong[0]}: the base decides the model; leave its fields out")
    values = plain_values(Sections(), changes_of(place, fields))
    return [override(path, value) for path, value in values.items()]


def _hint(name: str, infos: Sequence[FieldInfo]) -> str:
    """Return the suggestion for an unknown keyword: `; did you mean 'train_steps'?`."""
    names = {info.path: keyword(info.path) for info in infos}
    known = field_path(name, infos)
    hint = "" if known or foreign_name(name, infos) else nearest(name, names.values())
    hint = hint or nearest_field(known or name, infos)
    if "'--" in hint:  # an option of the command line
        return ""
    return re.sub(r"'([\w.]+)'", lambda found: f"'{names.get(found[1], found[1])}'", hint)
