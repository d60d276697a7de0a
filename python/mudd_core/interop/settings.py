"""Settings of an original program, read with their type and bounds checked before anything divides by them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsFloat, TypeAlias, TypedDict

from mudd_core.base.types import Json

Settings: TypeAlias = Mapping[str, Json]

LARGEST = 2**31 - 1  # what sizes of the core can hold
MOST_LAYERS = 10_000  # as model.n_layer of most families


class TransformerFields(TypedDict):
    """Fields that Transformer++, MUDDFormer and Mixtral have in common."""

    vocab_size: int
    max_seq_len: int
    d_model: int
    n_layer: int
    n_head: int
    n_kv_head: int
    d_head: int
    d_ff: int
    rope_base: float
    norm_eps: float
    tie_embeddings: bool
    init_std: float


@dataclass(frozen=True)
class Reader:
    """The settings of one program; a setting that is absent or null has its default. ValueError names the setting."""

    system: str
    config: Settings

    def whole(self, name: str, default: int | None = None, *, low: int = 1, high: int = LARGEST) -> int:
        """A whole number; without a default the setting must be there."""
        value = self._given(name, default)
        if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refusal(name, f"a whole number from {low} to {high}", value)
        return value

    def number(self, name: str, default: float) -> float:
        """A finite number; a string of one counts, since YAML reads 1e-5 as a string."""
        value = self._given(name, default)
        found = math.nan
        if isinstance(value, str | SupportsFloat) and not isinstance(value, bool):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                found = float(value)
        if not math.isfinite(found):
            raise self.refusal(name, "a finite number", value)
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false, also as 1 or 0."""
        value = self._given(name, default)
        if not isinstance(value, int | float) or value not in (0, 1):
            raise self.refusal(name, "true or false", value)
        return bool(value)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of some words."""
        value = self._given(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.refusal(name, f"one of {', '.join(choices)}", value)
        return value

    def agree(self, found: Mapping[str, int]) -> None:
        """ValueError if a size among the settings is not what the tensors say. found: their sizes by setting."""
        for name, size in found.items():
            if self.config.get(name) is None:
                continue
            given = self.whole(name, low=-1)
            if given != size:
                raise ValueError(f"[{self.system}] {name}: the weights have {size}, the settings say {given}")

    def refusal(self, name: str, expected: str, value: Json) -> ValueError:
        """What is wrong with a setting, its value cut to a length that one reads."""
        huge = isinstance(value, int) and value.bit_length() > 256
        text = "a number of more than 256 bits" if huge else repr(value)
        text = text if len(text) <= 80 else f"{text[:77]}..."
        return ValueError(f"[{self.system}] {name}: expected {expected}, got {text}")

    def _given(self, name: str, default: Json) -> Json:
        value = self.config.get(name)
        if value is None and default is None:
            raise ValueError(f"[{self.system}] {name} is missing")
        return default if value is None else value


def sizes(system: str, shapes: Mapping[str, tuple[int, ...]], name: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor that must be there and have so many axes, none of them empty."""
    if name not in shapes:
        raise ValueError(f"[{system}] weights: '{name}' is missing")
    if len(shapes[name]) != axes or 0 in shapes[name]:
        raise ValueError(
            f"[{system}] weights: '{name}': expected {axes} axes with sizes above 0, got {shapes[name]}"
        )
    return shapes[name]


def layers_in(system: str, count: int) -> int:
    """A number of layers read off the tensors; ValueError for more than a model may have."""
    if not 1 <= count <= MOST_LAYERS:
        raise ValueError(f"[{system}] weights: expected 1 to {MOST_LAYERS} layers, got {count}")
    return count


def lacking(system: str, model: object, name: str) -> str:
    """The message for a field of a model whose value an original program does not have."""
    return (
        f"[{system}] model.{name}: expected a value that the other program has, got {getattr(model, name)!r}; another "
        "--system may have it"
    )
