"""PEFT's names of a model's adapted layers: the modules of transformers, and the two tensors of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mudd_core.config import ModelConfig
from mudd_core.interop.hf import SYSTEM
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.layout import Entry

FACTORS = {
    "lora_a": "lora_A",
    "lora_b": "lora_B",
}  # [in, rank] and [rank, out] in mudd_core, transposed in PEFT
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Module:
    """A module of transformers with a matrix. layers: the mudd_core layers that the matrix contains.

    fan_in_first: the matrix is [in, out], as in mudd_core; otherwise [out, in]. width: its outputs. entries: the place
    of each layer in the matrix.
    """

    name: str
    layers: tuple[str, ...]
    fan_in_first: bool
    width: int
    entries: tuple[Entry, ...]


def modules_of(model: ModelConfig) -> dict[str, Module]:
    """Return the modules with linear layers, by name. Raise ValueError for a family that transformers lacks."""
    if not isinstance(model, HfModel):
        raise ValueError(f"family: expected one of {', '.join(SYSTEM.families)}, got '{model.family}'")
    found: dict[str, Module] = {}
    shapes = SYSTEM.shapes(model, {})
    for entry in SYSTEM.entries(model, {}):
        layer, name = entry.ours.removesuffix(".w"), entry.theirs.removesuffix(".weight")
        if layer != entry.ours:
            layers, entries = (found[name].layers, found[name].entries) if name in found else ((), ())
            first = entry.axes is None
            width = shapes[entry.theirs][-1 if first else -2]
            found[name] = Module(name, (*layers, layer), first, width, (*entries, entry))
    return found


def tensor_name(module: str, factor: str) -> str:
    """Return the tensor name of a factor (lora_a or lora_b) of a module's adapter."""
    return f"{_PREFIX}{module}.{FACTORS[factor]}.weight"


def tensor_of(name: str) -> tuple[str, str] | None:
    """Return (module, factor) for a tensor name; None for a tensor of another kind."""
    for factor, theirs in FACTORS.items():
        end = f".{theirs}.weight"
        if name.startswith(_PREFIX) and name.endswith(end):
            return name.removeprefix(_PREFIX).removesuffix(end), factor
    return None


def shortest(asked: Collection[str], every: Iterable[str]) -> list[str]:
    """Return the shortest names that select `asked` among `every`.

    A last part is enough if all names that end with it are selected; otherwise the whole names are needed.
    """
    whole = list(every)
    found = []
    for word in dict.fromkeys(_last(name) for name in whole if name in asked):
        having = [name for name in whole if _last(name) == word]
        found += [word] if all(name in asked for name in having) else [n for n in having if n in asked]
    return found


def _last(name: str) -> str:
    return name.rpartition(".")[2]
