"""The tensors of transformers in the order, shapes and types of llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from mudd_core.base.types import Array, Float32, JsonObject
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.gguf_file import STORED, GgufTensor, Stored
from mudd_core.config import ModelConfig
from mudd_core.interop.gguf.fields import rope_factors
from mudd_core.interop.gguf.places import Place
from mudd_core.interop.gguf.types import GgufType
from mudd_core.interop.hf_rows import size_of
from mudd_core.interop.layout import TheirTensors
from mudd_core.interop.peft_experts import split_factors, stacks_of
from mudd_core.interop.peft_names import tensor_of

_BLOCK = re.compile(r"(?:(?:(?:model|gpt_neox)\.)?layers|(?:transformer\.)?h)\.(\d+)\.(.+)")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_HEAD, _EMBEDDING = "output.weight", "token_embd.weight"
# Matrices that llama.cpp keeps in fp32 because they are small and sensitive.
_ALWAYS_F32 = ("ffn_gate_inp", "position_embd")


def model_tensors(
    kind: GgufType, settings: JsonObject, weights: TheirTensors, stored: Stored, alive: Callable[[], None]
) -> list[GgufTensor]:
    """Return the tensors of a model; each is computed when it is written.

    weights: by the names of transformers. stored: the type of matrices. alive: called for each tensor. Raise
    ValueError for a tensor that the type does not have in GGUF.
    """
    parts: dict[str, list[str]] = {}
    for name in weights:
        parts.setdefault(_name(kind, name), []).append(name)
    found = []
    if (factors := rope_factors(settings)) is not None:
        found.append(GgufTensor("rope_freqs.weight", factors.shape, STORED["f32"], lambda: factors))
    if kind.needs_head and _HEAD not in parts:
        parts[_HEAD] = parts[_EMBEDDING]
    for name, theirs in parts.items():
        place = _place(kind, theirs[0])
        shape = _shape(place, weights.shapes[theirs[0]])
        if is_stack := _EXPERT.search(theirs[0]) is not None:
            shape = (len(theirs), *shape)
        make = partial(_made, place, settings, weights, theirs, is_stack, alive)
        found.append(GgufTensor(name, shape, _type(place, shape, stored), make))
    return found


def adapter_tensors(
    kind: GgufType, settings: JsonObject, weights: Mapping[str, Float32], stored: Stored
) -> list[GgufTensor]:
    """Return the tensors of adapters: `lora_a` [rank, in] and `lora_b` [out, rank] of each matrix.

    weights: by the names of PEFT, in the shapes of PEFT.
    """
    found = []
    for name, value in weights.items():
        at = tensor_of(name)
        assert at is not None
        module, factor = at
        place = _place(kind, f"{module}.weight")
        if factor == "lora_b":
            value = _reordered(place, settings, value)
        ours = f"{_name(kind, f'{module}.weight')}.{factor}"
        found.append(GgufTensor(ours, value.shape, _type(place, value.shape, stored), partial(_same, value)))
    return found


def stack_tensors(
    kind: GgufType, model: ModelConfig, weights: Mapping[str, Float32], stored: Stored
) -> list[GgufTensor]:
    """Return the adapters of experts: `lora_a` [E, rank, in] and `lora_b` [E, out, rank] of gate, up and down.

    weights: by mudd_core's names. llama.cpp has gate and up apart, so both have a copy of the A that they share.
    """
    found = []
    for stack in (one for one in stacks_of(model) if f"{one.layer}.lora_a" in weights):
        parts = ("ffn_gate_exps", "ffn_up_exps") if stack.parts == 2 else ("ffn_down_exps",)
        for part, pair in zip(parts, split_factors(stack, weights), strict=True):
            place = next(one for one in kind.places.values() if one.name == part)
            for factor, value in zip(("lora_a", "lora_b"), pair, strict=True):
                name = f"blk.{stack.block}.{part}.weight.{factor}"
                found.append(
                    GgufTensor(name, value.shape, _type(place, value.shape, stored), partial(_same, value))
                )
    return found


def _same(value: Float32) -> Float32:
    return value


def _split(theirs: str) -> tuple[str, str, str]:
    """Return (prefix in GGUF, name of the place, suffix) for a name of transformers."""
    at = _BLOCK.fullmatch(theirs)
    prefix, rest = (
        (f"blk.{at[1]}.", at[2]) if at else ("", re.sub(r"^(model|transformer|gpt_neox)\.", "", theirs))
    )
    stem, _, suffix = rest.rpartition(".")
    return prefix, _EXPERT.sub(".experts.*.", stem), suffix


def _place(kind: GgufType, theirs: str) -> Place:
    _, name, suffix = _split(theirs)
    if name not in kind.places or suffix not in ("weight", "bias"):
        raise ValueError(f"expected tensors that llama.cpp has for {kind.model_type}, got '{theirs}'")
    return kind.places[name]


def _name(kind: GgufType, theirs: str) -> str:
    prefix, _, suffix = _split(theirs)
    return f"{prefix}{_place(kind, theirs).name}.{suffix}"


def _shape(place: Place, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[::-1] if place.is_transposed else shape


def _type(place: Place, shape: tuple[int, ...], stored: Stored) -> Stored:
    """Return the type of a tensor: fp32 for vectors, small matrices, and rows that are no whole blocks."""
    if len(shape) == 1 or place.name in _ALWAYS_F32 or shape[-1] % stored.block:
        return STORED["f32"]
    return stored


def _made(
    place: Place,
    settings: JsonObject,
    weights: Mapping[str, Array],
    names: list[str],
    is_stack: bool,
    alive: Callable[[], None],
) -> Array:
    alive()
    value = dtypes.as_float32(weights[names[0]])
    if is_stack:
        stack = np.empty((len(names), *value.shape), np.float32)
        for n, name in enumerate(names):
            stack[n] = dtypes.as_float32(weights[name])
        return stack
    value = value.T if place.is_transposed else _reordered(place, settings, value)
    return value + np.float32(place.offset) if place.offset else value


def _reordered(place: Place, settings: JsonObject, value: Float32) -> Float32:
    """Return a matrix or bias with rows in llama.cpp's order.

    It interleaves the two halves of a head's rows. A joined matrix has all q, then all k, then all v.
    """
    if place.joined:
        heads = size_of(settings, place.joined)
        parts = value.reshape(heads, 3, -1, *value.shape[1:])
        return parts.swapaxes(0, 1).reshape(value.shape)
    if not place.heads:
        return value
    heads = size_of(settings, place.heads)
    halves = value.reshape(heads, 2, -1, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)
