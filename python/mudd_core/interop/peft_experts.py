"""Adapters of a layer's experts in PEFT, which adapts two parameters of one module: gate_up_proj and down_proj.

Each parameter stacks the matrices of all experts. PEFT names the adapter of the last parameter after the module, and
the other adapter after the `base_layer` of the module. It stores A [E rank, in] and B [out, rank E]. The outputs of
gate_up_proj are first gate, then up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Float32, Json
from mudd_core.config import ModelConfig, mixture_of
from mudd_core.interop.peft_joined import Factors

_INNER = ".base_layer"


@dataclass(frozen=True)
class Stack:
    """A parameter of transformers with a matrix of every expert. layer: the experts of mudd_core that it contains.

    parts: matrices of an expert in it that share the A of an adapter.
    """

    name: str
    layer: str
    experts: int
    parts: int

    @property
    def block(self) -> str:
        """The number of the block."""
        return self.layer.split(".")[1]

    @property
    def module(self) -> str:
        """The module of the parameter."""
        return self.name.rpartition(".")[0]


def stacks_of(model: ModelConfig) -> list[Stack]:
    """Return the stacks of a model's experts, in the order of their parameters in a module."""
    mixture = mixture_of(model)
    if mixture is None:
        return []
    return [
        Stack(f"model.layers.{n}.mlp.experts.{theirs}", f"blocks.{n}.ffn.{ours}", mixture.n_expert, parts)
        for n in range(mixture.n_layer)
        for ours, theirs, parts in (("gate_up", "gate_up_proj", 2), ("down", "down_proj", 1))
    ]


def selected(stacks: Sequence[Stack], words: Collection[str]) -> list[Stack]:
    """Return the stacks that target_parameters selects: whole names, or their last parts."""
    return [one for one in stacks if any(one.name == word or one.name.endswith(f".{word}") for word in words)]


def words_for(stacks: Sequence[Stack], chosen: Collection[Stack]) -> list[Json]:
    """Return the shortest target_parameters that select the chosen stacks."""
    found: list[Json] = []
    for end in dict.fromkeys(_end(one) for one in stacks):
        every = [one for one in stacks if _end(one) == end]
        asked = [one for one in every if one in chosen]
        found += [end] if asked == every else [one.name for one in asked]
    return found


def _end(stack: Stack) -> str:
    return ".".join(stack.name.split(".")[-3:])


def wrapped(chosen: Sequence[Stack]) -> dict[str, Stack]:
    """Return the stacks with an adapter by PEFT's name of the adapter."""
    found: dict[str, Stack] = {}
    for module in dict.fromkeys(one.module for one in chosen):
        of_module = [one for one in chosen if one.module == module]
        for depth, one in enumerate(reversed(of_module)):
            found[module + depth * _INNER] = one
    return found


def to_peft(stack: Stack, a: Float32, b: Float32) -> Factors:
    """Return A [E rank, in] and B [out, rank E] as PEFT stores them. a: [E, in, rank]. b: [E, parts rank, width]."""
    experts, fan_in, rank = a.shape
    width = b.shape[-1]
    theirs_a = a.swapaxes(1, 2).reshape(experts * rank, fan_in)
    theirs_b = b.reshape(experts, stack.parts, rank, width).transpose(1, 3, 2, 0)
    return np.ascontiguousarray(theirs_a), theirs_b.reshape(stack.parts * width, rank * experts)


def from_peft(stack: Stack, a: Float32, b: Float32) -> Factors:
    """Return A [E, in, rank] and B [E, parts rank, width] for A [E rank, in] and B [out, rank E]."""
    rank, width = a.shape[0] // stack.experts, b.shape[0] // stack.parts
    ours_a = a.reshape(stack.experts, rank, -1).swapaxes(1, 2)
    ours_b = b.reshape(stack.parts, width, rank, stack.experts).transpose(3, 0, 2, 1)
    return np.ascontiguousarray(ours_a), ours_b.reshape(stack.experts, stack.parts * rank, width)


def split_factors(stack: Stack, weights: Mapping[str, Float32]) -> list[Factors]:
    """Return A [E, rank, in] and B [E, out, rank] of each part of a stack; they share A."""
    a, b = (weights[f"{stack.layer}.lora_{factor}"] for factor in "ab")
    whole = b.reshape(stack.experts, stack.parts, a.shape[-1], -1).swapaxes(2, 3)
    return [
        (np.ascontiguousarray(a.swapaxes(1, 2)), np.ascontiguousarray(whole[:, part]))
        for part in range(stack.parts)
    ]
