"""The tensors of adapters in PEFT's format, read into the layers of mudd_core."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array, Float32
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.checkpoint.weights import stored_in
from mudd_core.interop.peft_experts import Stack, from_peft
from mudd_core.interop.peft_joined import Factors, separated
from mudd_core.interop.peft_names import FACTORS, Module, tensor_of

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model"
TENSORS = f"{WEIGHTS}.safetensors"
_PICKLE = "adapter_model.bin"


@dataclass(frozen=True)
class Expected:
    """The adapters that a base and its adapter_config.json allow.

    modules: the base's modules by transformers' name. linears: the mudd_core layers that may have an adapter. rank: of
    a layer's adapter. ranks: of each module's adapter. stacks: the stacks of experts with adapters, by PEFT's name.
    place: the prefix of messages.
    """

    modules: Mapping[str, Module]
    linears: Sequence[str]
    rank: int
    ranks: Mapping[str, int]
    stacks: Mapping[str, Stack]
    place: str


def adapter_weights(folder: Path, expected: Expected) -> dict[str, Float32]:
    """Return the adapter tensors of a folder, with mudd_core's names and shapes.

    Raise FormatError for a wrong rank, a missing tensor, NaN or infinity; UserError for adapters of another base.
    """
    file = folder / TENSORS
    if not file.is_file():
        pickled = (
            f"; {_PICKLE} is a pickle, which runs code when opened" if (folder / _PICKLE).is_file() else ""
        )
        raise UserError(f"{expected.place}: expected {TENSORS} in {folder}, which has none{pickled}")
    found = _factors_in(file, expected)
    _require_whole(file, found, expected.stacks)
    layers: dict[str, Float32] = {}
    for name, factors in found.items():
        a, b = (factors[one] for one in FACTORS)
        if name in expected.stacks:
            layers |= _of_stack(expected.stacks[name], a, b, file)
            continue
        for layer, pair in _layers_of(expected.modules[name], a, b, expected.rank, expected.place).items():
            layers |= {f"{layer}.{factor}": value for factor, value in zip(FACTORS, pair, strict=True)}
    return layers


def _factors_in(file: Path, expected: Expected) -> dict[str, dict[str, Float32]]:
    """Return the factors of each adapter in a file, by PEFT's name of its module or stack."""
    found: dict[str, dict[str, Float32]] = {}
    for name, tensor in stored_in([file]).items():
        at = tensor_of(name)
        if at is None:
            raise UserError(
                f"{expected.place}: {file}: '{name}' is of no adapter of a linear layer (lora_A and lora_B)"
            )
        module, factor = at
        if module in expected.stacks:
            rank, experts = expected.rank, expected.stacks[module].experts
        else:
            _require_linear(file, module, expected)
            rank, experts = expected.ranks[module], None
        found.setdefault(module, {})[factor] = _factor(file, name, factor, tensor, rank, experts)
    return found


def _require_linear(file: Path, module: str, expected: Expected) -> None:
    """Raise UserError if a name in PEFT's file is no linear layer of the base that may have an adapter."""
    if module not in expected.modules:
        raise UserError(
            f"{expected.place}: {file}: '{module}' is no linear layer of the base; the adapter belongs to another model"
        )
    # every expert of a stack would be this one layer
    if expected.modules[module].layers[0] not in expected.linears:
        raise UserError(
            f"{expected.place}: {file}: '{module}' is of a router, or of one expert as in transformers 4; "
            "merge it in PEFT (merge_and_unload) and give that folder as --base"
        )


def _require_whole(
    file: Path, found: Mapping[str, Mapping[str, Float32]], stacks: Mapping[str, Stack]
) -> None:
    """Raise FormatError if an adapter has one of its two tensors, or a stack or the file has none."""
    for module, factors in found.items():
        if len(factors) < len(FACTORS):
            raise FormatError(str(file), 8, f"the adapter of '{module}' has one of its two tensors")
    if not found:
        raise FormatError(str(file), 8, "no tensor in it")
    if missing := [stack.name for name, stack in stacks.items() if name not in found]:
        raise FormatError(
            str(file), 8, f"no adapter of '{missing[0]}', which target_parameters of {SETTINGS} names"
        )


def _of_stack(stack: Stack, a: Float32, b: Float32, file: Path) -> dict[str, Float32]:
    """Return the factors of a stack of experts. Raise FormatError if gate and up have different widths."""
    if b.shape[1] % stack.parts:
        raise FormatError(
            str(file),
            8,
            f"the adapter of '{stack.name}': expected an even number of outputs, got {b.shape[1]}",
        )
    factors = from_peft(stack, np.ascontiguousarray(a.T), np.ascontiguousarray(b.T))
    return {f"{stack.layer}.{factor}": value for factor, value in zip(FACTORS, factors, strict=True)}


def _layers_of(module: Module, a: Float32, b: Float32, rank: int, place: str) -> dict[str, Factors]:
    """Return the factors of each mudd_core layer of a module. Raise UserError if they do not fit the layers."""
    if len(module.layers) == 1:
        return {module.layers[0]: (a, b)}
    if b.shape[1] != module.width:
        raise UserError(
            f"{place}: expected adapters of this base, whose {module.name} has {module.width} outputs, got one with "
            f"{b.shape[1]}; give the base that the adapter was trained on"
        )
    layers = separated(module, a, b, rank)
    if layers is None:
        raise UserError(
            f"{place}: '{module.name}' is {len(module.layers)} layers here ({', '.join(module.layers)}), each with an "
            f"adapter of rank {rank}; merge it in PEFT (merge_and_unload) and give that folder as --base"
        )
    return layers


def _factor(
    file: Path, name: str, factor: str, tensor: AnyTensor, rank: int, experts: int | None = None
) -> Float32:
    """Return a factor transposed, as mudd_core has it. Raise FormatError for another rank than in the settings or for
    NaN or infinity.

    experts: the number of experts in a stack, each of this rank.
    """
    shape = tuple(tensor.shape)
    has = shape[0 if factor == "lora_a" else 1] if len(shape) == 2 else -1
    if has != rank * (experts or 1):
        of = f" for {experts} experts" if experts else ""
        raise FormatError(
            str(file), 8, f"tensor '{name}': expected rank {rank}{of} of {SETTINGS}, got shape {shape}"
        )
    array: Array = np.asarray(tensor)
    if array.dtype not in (dtypes.BF16, np.float16, np.float32, np.float64):
        raise FormatError(
            str(file), 8, f"tensor '{name}': expected floating-point numbers, got {array.dtype}"
        )
    values = np.ascontiguousarray(dtypes.as_float32(array).T)
    if not math.isfinite(float(np.abs(values).max(initial=0.0))):
        raise FormatError(
            str(file), 8, f"tensor '{name}': expected finite numbers; its training had diverged"
        )
    return values
