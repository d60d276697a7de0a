"""The registry of model families, those of this package and the user's.

A user's family is named FILE.py:NAME, or NAME if a program registers it without a file. docs/your-own.md explains how
to write one.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from mudd_core.base.errors import UserError
from mudd_core.config.families.gpt2 import GPT2Config
from mudd_core.config.families.heads import FamilyConfig, Sizes
from mudd_core.config.families.mixtral import MixtralConfig
from mudd_core.config.families.model_config import ModelConfig
from mudd_core.config.families.muddformer import MUDDFormerConfig
from mudd_core.config.families.mup import MupConfig
from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.config.families.transformer_pp import TransformerPPConfig
from mudd_core.config.own_files import OwnFile, file_of_module, run_own, split_name

KEY = "model.family"
_KINDS = (bool, int, float, str)  # types that a field may have
_Config = TypeVar("_Config", bound=ModelConfig)


class Shaped(Protocol):
    """An object with a shape: a value of a graph, or an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""


class States(Protocol):
    """The result of a model function: mc.Hidden."""

    @property
    def h(self) -> Shaped:
        """The final states [B, T, D]."""

    @property
    def head(self) -> Shaped:
        """The matrix [V, D] of the logits."""


# model(config, batch, cache), or model(config, batch) for a family that decodes by full passes.
GivenFunction: TypeAlias = Callable[..., States]


@dataclass(frozen=True)
class Family:
    """A model family: its frozen config, and its model function.

    given: the function; None for a family of this package, whose module is models/<name>.py. decodes: True if the model
    supports a KV cache. file: the source file, if the user named one.
    """

    name: str
    config: type[ModelConfig]
    given: GivenFunction | None = None
    decodes: bool = True
    file: OwnFile | None = None


_INSIDE = (
    Family("transformer_pp", TransformerPPConfig),
    Family("gpt2", GPT2Config),
    Family("muddformer", MUDDFormerConfig),
    Family("mup", MupConfig),
    Family("tokenformer", TokenFormerConfig),
    Family("mixtral", MixtralConfig),
)
FAMILIES = {family.name: family for family in _INSIDE}
_of_class: dict[type[ModelConfig], Family] = {}  # the families of users
_versions: dict[tuple[str, str], Family] = {}  # families of files, by name and hash


def register_family(config_class: type[_Config], model_function: GivenFunction) -> type[_Config]:
    """Register an architecture, config and function; return the config class.

    config_class: a frozen dataclass derived from mc.FamilyConfig or from the config of a family. model_function:
    `model(config, batch, cache=None)` returns mc.Hidden; without a parameter `cache` the model decodes by full passes.
    In a file named by `model.family=FILE.py:NAME`, NAME is the class. Raise TypeError for an unsuitable class or
    function, ValueError for the name of a family of mudd_core.
    """
    name = config_class.__name__ if isinstance(config_class, type) else repr(config_class)
    _require_config(config_class, name)
    decodes = _takes_cache(model_function)
    file = file_of_module(config_class.__module__)
    full = f"{file.file}:{name}" if file is not None else name
    if full in {family.name for family in _INSIDE}:
        raise ValueError(
            f"[register_family] config_class: '{full}' is a family of mudd_core; choose another name"
        )
    config_class.registered_name = full
    family = Family(full, config_class, model_function, decodes, file)
    FAMILIES[full] = _of_class[config_class] = family
    if file is not None:
        _versions[full, file.sha256] = family
    return config_class


def _require_config(config_class: type[_Config], name: str) -> None:
    place = "[register_family] config_class"
    if not (isinstance(config_class, type) and issubclass(config_class, Sizes)):
        raise TypeError(f"{place}: expected a class derived from mc.FamilyConfig, got {name}")
    if (
        "__dataclass_fields__" not in vars(config_class)
        or not vars(config_class)["__dataclass_params__"].frozen
    ):
        raise TypeError(f"{place}: expected @dataclass(frozen=True) above class {name}, got none")
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        if hints[field.name] not in _KINDS:
            raise TypeError(
                f"{place}: {name}.{field.name}: expected int, float, bool or str, got {hints[field.name]}"
            )
        if field.default is dataclasses.MISSING:
            raise TypeError(f"{place}: {name}.{field.name}: expected a default value, got none")


def _takes_cache(function: GivenFunction) -> bool:
    expected = "[register_family] model_function: expected model(config, batch, cache=None)"
    if not callable(function):
        raise TypeError(f"{expected}, got {type(function).__name__}")
    signature = inspect.signature(function)
    for count in (3, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 3
    raise TypeError(f"{expected}, got {getattr(function, '__name__', 'it')}{signature}")


def named_family(name: str, text: bytes | None = None) -> Family:
    """Return the family of this name; run the file of FILE.py:NAME. Raise UserError for an unknown name.

    text: the bytes of the file; None: read the file.
    """
    found = split_name(name)
    if found is None:
        if name not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise UserError(f"[config] {KEY}: expected one of {known} or FILE.py:NAME, got {name!r}")
        return FAMILIES[name]
    file, leaf = found
    own = run_own(KEY, name, text)
    family = _versions.get((name, own.sha256))
    if family is None:
        there = "is not registered" if hasattr(own.module, leaf) else "is missing"
        raise UserError(
            f"[{KEY}] {file}: {leaf} {there}; expected a config class {leaf} and "
            f"mc.register_family({leaf}, model) after it"
        )
    FAMILIES[name] = family
    return family


def family_of(config: ModelConfig) -> Family:
    """Return the family of a config. Raise UserError if its file has not been run, ValueError if it is unknown."""
    if (own := _of_class.get(type(config))) is not None:
        return own
    if isinstance(config, StandIn):
        raise UserError(_not_run(config.family))
    family = FAMILIES.get(config.family)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ValueError(f"[model] family: expected one of {known}, got '{config.family}'")
    return family


def own_family(config: ModelConfig) -> Family | None:
    """Return the family of a config if a user defined it; otherwise None."""
    return _of_class.get(type(config))


def _not_run(name: str) -> str:
    return (
        f"[{KEY}] this run needs the code in {name}, and a command runs only the files that its "
        f"arguments name; add the file ({KEY}={name}; in Python mc.load_config('tiny.py', {{'{KEY}': "
        f"'{name}'}}) first), or the work directory that contains a copy (--workdir=DIR)"
    )


class StandIn(FamilyConfig):
    """A saved config of a family whose code has not been run: it has values but no model."""


def config_class_for_saved(name: str, values: Mapping[str, object]) -> type[ModelConfig]:
    """Return the class for a saved config: a known family's class, or a stand-in with its fields. No code runs."""
    if name in FAMILIES:
        return FAMILIES[name].config
    known = {field.name for field in dataclasses.fields(FamilyConfig)}
    fields = [
        (key, type(value), dataclasses.field(default=value))
        for key, value in values.items()
        if key not in known and isinstance(value, _KINDS)
    ]
    made: type[ModelConfig] = dataclasses.make_dataclass("StandIn", fields, bases=(StandIn,), frozen=True)
    return made


def in_family(config: ModelConfig, family: Family) -> ModelConfig:
    """Return a config of another family; fields that both have keep their values."""
    if type(config) is family.config:
        return config
    mine = {field.name for field in dataclasses.fields(config)}
    shared = {field.name for field in dataclasses.fields(family.config)} & mine - {"family"}
    return family.config(**{name: getattr(config, name) for name in shared})
