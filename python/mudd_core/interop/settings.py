"""Settings of an original program, with type and bounds checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from mudd_core.base.types import Json
from mudd_core.config import values

Settings: TypeAlias = Mapping[str, Json]
LARGEST = 2**31 - 1  # the largest size in the core
MOST_LAYERS = 10_000  # as model.n_layer of most families


class TransformerFields(TypedDict):
    """Fields that Transformer++, MUDDFormer and Mixtral share."""

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
    """A reader of one program's settings, in which a setting that is absent or null has its default.

    Raise ValueError, with the setting's name, for a wrong value.
    """

    system: str
    config: Settings

    def whole(self, name: str, default: int | None = None, *, low: int = 1, high: int = LARGEST) -> int:
        """Return an integer. Without a default the setting is required."""
        given = self._given(name, default)
        return values.whole(self._place(name), given, low, high, strings=False)

    def number(self, name: str, default: float) -> float:
        """Return a finite float. A string such as "1e-5" is accepted, because YAML reads 1e-5 as a string."""
        return values.number(self._place(name), self._given(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean; 1 and 0 are accepted."""
        return values.flag(self._place(name), self._given(name, default), strings=False)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of the choices."""
        return values.one_of(self._place(name), self._given(name, default), choices)

    def agree(self, found: Mapping[str, int]) -> None:
        """Raise ValueError if a size in the settings differs from the tensors. found: tensors' sizes, by setting."""
        for name, size in found.items():
            if self.config.get(name) is None:
                continue
            given = self.whole(name, low=-1)
            if given != size:
                raise ValueError(f"[{self.system}] {name}: the weights have {size}, the settings say {given}")

    def refusal(self, name: str, expected: str, value: Json) -> ValueError:
        """Return the error for a wrong setting, with its value shortened to a readable length."""
        return values.mismatch(self._place(name), expected, value)

    def _place(self, name: str) -> str:
        return f"[{self.system}] {name}"

    def _given(self, name: str, default: Json) -> Json:
        value = self.config.get(name)
        if value is None and default is None:
            raise ValueError(f"[{self.system}] {name} is missing")
        return default if value is None else value


def sizes(system: str, shapes: Mapping[str, tuple[int, ...]], name: str, axes: int) -> tuple[int, ...]:
    """Return the shape of a required tensor with `axes` axes, none of them of size 0."""
    if name not in shapes:
        raise ValueError(f"[{system}] weights: '{name}' is missing")
    if len(shapes[name]) != axes or 0 in shapes[name]:
        raise ValueError(
            f"[{system}] weights: '{name}': expected {axes} axes with sizes above 0, got {shapes[name]}"
        )
    return shapes[name]


def layers_in(system: str, count: int) -> int:
    """Return the number of layers found in the tensors. Raise ValueError if it is more than a model may have."""
    if not 1 <= count <= MOST_LAYERS:
        raise ValueError(f"[{system}] weights: expected 1 to {MOST_LAYERS} layers, got {count}")
    return count


def lacking(system: str, model: object, name: str) -> str:
    """Return the message for a model field whose value an original program does not have."""
    return (
        f"[{system}] model.{name}: expected a value that the other program has, got {getattr(model, name)!r}; another "
        "--system may have it"
    )
