"""Kinds of table rows for hf_settings.py: each kind reads settings of transformers and writes them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mudd_core.base.types import Json, JsonObject
from mudd_core.config.families import GPT2Config, MixtralConfig, TransformerPPConfig
from mudd_core.interop.lost_fields import spelled
from mudd_core.interop.settings import Reader

HfModel = TransformerPPConfig | GPT2Config | MixtralConfig


class Row(ABC):
    """One setting of a config.json, or several that set the same fields of the model config, in both directions."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the names of the settings."""

    @abstractmethod
    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        """Return the fields of the model config. found: the fields that earlier rows of the table have read.

        Raise ValueError, with the setting's name, if mudd_core has no equivalent.
        """

    @abstractmethod
    def write(self, model: HfModel) -> JsonObject:
        """Return the settings for a mudd_core model config."""


@dataclass(frozen=True)
class _OneSetting(Row):
    theirs: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,)

    def _require_one_of(self, read: Reader, values: tuple[Json, ...]) -> None:
        """Raise ValueError unless the setting is absent or has one of the values. null is a value like any other."""
        given = read.config.get(self.theirs)
        if self.theirs in read.config and given not in values:
            raise ValueError(f"[hf] {self.theirs}: expected {' or '.join(map(repr, values))}, got {given!r}")


class Multiple(NamedTuple):
    """A default that is a multiple of a field of an earlier row."""

    field: str
    times: int = 1


@dataclass(frozen=True)
class Whole(_OneSetting):
    """An integer.

    default: the value if the setting is null. absent: the value if the setting is missing; None: the default.
    written: computes the integer from the model config; without it the field is written. older: another name of the
    setting.
    """

    ours: str
    default: int | Multiple
    absent: int | None = None
    low: int = 1
    written: Callable[[HfModel], int] | None = None
    older: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs, self.older) if self.older else (self.theirs,)

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        default = self.default
        number = default if isinstance(default, int) else default.times * size_of(found, default.field)
        if self.absent is not None and self.theirs not in read.config:
            number = self.absent
        if self.older:
            number = read.whole(self.older, number)
        return {self.ours: read.whole(self.theirs, number, low=self.low)}

    def write(self, model: HfModel) -> JsonObject:
        return {self.theirs: self.written(model) if self.written else getattr(model, self.ours)}


@dataclass(frozen=True)
class Number(_OneSetting):
    """A float. is_written: a config class of transformers has this setting."""

    ours: str
    default: float
    is_written: bool = True

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        return {self.ours: read.number(self.theirs, self.default)}

    def write(self, model: HfModel) -> JsonObject:
        return {self.theirs: getattr(model, self.ours)} if self.is_written else {}


@dataclass(frozen=True)
class Flag(_OneSetting):
    """A boolean. is_strict: reject null, which transformers would treat as false."""

    ours: str
    default: bool = False
    is_strict: bool = False

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        if self.is_strict:
            self._require_one_of(read, (True, False))
        return {self.ours: read.flag(self.theirs, self.default)}

    def write(self, model: HfModel) -> JsonObject:
        return {self.theirs: getattr(model, self.ours)}


@dataclass(frozen=True)
class Word(_OneSetting):
    """A string with a few allowed values. spellings: map from transformers' value to our value.

    If several map to one value, the first is written. ours: our field; empty if every model of the kind has the first
    spelling.
    """

    ours: str
    default: str
    spellings: Mapping[str, str]

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        self._require_one_of(read, tuple(self.spellings))
        word = str(read.config.get(self.theirs, self.default))
        return {self.ours: self.spellings[word]} if self.ours else {}

    def write(self, model: HfModel) -> JsonObject:
        if not self.ours:
            return {self.theirs: next(iter(self.spellings))}
        return {self.theirs: spelled("hf", self.ours, self.spellings, getattr(model, self.ours))}


@dataclass(frozen=True)
class Fixed(_OneSetting):
    """A setting that may be null or have one of these values. It sets no field and is not written.

    remedy: the end of the message about another value.
    """

    values: tuple[Json, ...] = ()
    remedy: str = ""

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        given = read.config.get(self.theirs)
        if given is not None and given not in self.values:
            expected = repr(self.values[0]) if self.values else "no value"
            raise ValueError(f"{read.refusal(self.theirs, expected, given)}{self.remedy}")
        return {}

    def write(self, model: HfModel) -> JsonObject:
        return {}


@dataclass(frozen=True)
class Needed(_OneSetting):
    """A setting that must have this value, which is not transformers' default. It sets no field.

    remedy: as in Fixed.
    """

    value: Json
    remedy: str = ""

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        if (given := read.config.get(self.theirs)) != self.value:
            raise ValueError(f"{read.refusal(self.theirs, json.dumps(self.value), given)}{self.remedy}")
        return {}

    def write(self, model: HfModel) -> JsonObject:
        return {self.theirs: self.value}


@dataclass(frozen=True)
class Inert(_OneSetting):
    """A setting without effect on the model. written: its value in an exported config.json."""

    written: tuple[Json, ...] = ()

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        return {}

    def write(self, model: HfModel) -> JsonObject:
        return {self.theirs: self.written[0]} if self.written else {}


@dataclass(frozen=True)
class HiddenDropout(Row):
    """GPT-NeoX's dropout of the embeddings and of the outputs that are added to the residual stream."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("hidden_dropout",)

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        rate = read.number("hidden_dropout", 0.0)
        return {"embd_dropout": rate, "resid_dropout": rate}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, GPT2Config)
        return {"hidden_dropout": model.resid_dropout}


@dataclass(frozen=True)
class BalanceLoss(Row):
    """The coefficient of Mixtral's load-balancing loss, with the switch that adds the loss."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("router_aux_loss_coef", "output_router_logits")

    def read(self, read: Reader, found: JsonObject) -> JsonObject:
        weight, switch = self.names
        coefficient = read.number(weight, 0.001)
        return {"aux_coef": coefficient if read.flag(switch) else 0.0}

    def write(self, model: HfModel) -> JsonObject:
        assert isinstance(model, MixtralConfig)
        return dict(zip(self.names, (model.aux_coef, model.aux_coef > 0), strict=True))


def size_of(found: JsonObject, field: str) -> int:
    """Return a size that an earlier row has read."""
    size = found[field]
    assert isinstance(size, int)
    return size
