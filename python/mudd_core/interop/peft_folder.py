"""A folder of LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import member
from mudd_core.base.types import Array, Float32, Json, JsonObject
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.checkpoint.weights import stored_in
from mudd_core.config import LoraConfig, ModelConfig
from mudd_core.config.tune import ALL
from mudd_core.engine.lora import adaptable_names
from mudd_core.engine.model import Model
from mudd_core.interop.peft_experts import Stack, from_peft, selected, stacks_of, to_peft, words_for, wrapped
from mudd_core.interop.peft_joined import Factors, joined, patterns, separated, short, without_patterns
from mudd_core.interop.peft_names import FACTORS, Module, modules_of, shortest, tensor_name, tensor_of
from mudd_core.run.store.json_files import read_object

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model"
TENSORS = f"{WEIGHTS}.safetensors"
_PICKLE = "adapter_model.bin"

# Settings of LoraConfig that do not change the output of adapters with known weights. The tensor names show which
# layers have an adapter.
_WITHOUT_EFFECT = frozenset(
    (
        *("auto_mapping", "base_model_name_or_path", "corda_config", "ephemeral_gpu_offload", "eva_config"),
        *("exclude_modules", "fan_in_fan_out", "inference_mode", "layers_pattern", "layers_to_transform"),
        *("loftq_config", "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "revision"),
        *("runtime_config", "target_modules"),
    )
)
_READ = frozenset(("r", "lora_alpha", "lora_dropout", "target_parameters"))
_FIXED: Mapping[str, tuple[Json, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva"),  # other values change the base's weights too
}
_ADVICE = {
    "init_lora_weights": "; save_pretrained(FOLDER, path_initial_model_for_weight_conversion=INITIAL) of PEFT writes "
    "adapters of the base as it was",
}


@dataclass(frozen=True)
class Adapter:
    """The adapters in a folder. lora: their settings; weights: float32, with mudd_core's names and shapes."""

    lora: LoraConfig
    weights: Mapping[str, Float32]


def adapter_settings(model: ModelConfig, lora: LoraConfig, layers: list[str], base: str) -> JsonObject:
    """Return the adapter_config.json for adapters on these mudd_core layers. base: name or folder of the base model."""
    modules = _linear_modules(model)
    counts = {name: sum(layer in layers for layer in module.layers) for name, module in modules.items()}
    asked = [name for name, count in counts.items() if count]
    stacks = stacks_of(model)
    chosen = [stack for stack in stacks if stack.layer in layers]
    return {
        **patterns(counts, lora.rank, lora.alpha),
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": bool(asked) and modules[asked[0]].fan_in_first,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": short(lora.alpha),
        "lora_dropout": lora.dropout,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": list[Json](shortest(asked, modules)),
        **({"target_parameters": words_for(stacks, chosen)} if chosen else {}),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


def adapter_tensors(
    model: ModelConfig, weights: Mapping[str, Float32], *, has_patterns: bool = True
) -> dict[str, Float32]:
    """Return the adapter tensors by PEFT's names, [rank, in] and [out, rank]. weights: by mudd_core's names.

    has_patterns: the rank may differ between modules. Without it, raise UserError for a layer that is only a part of a
    matrix in transformers.
    """
    found = {}
    for module in _linear_modules(model).values():
        layers = {
            layer: (weights[f"{layer}.lora_a"], weights[f"{layer}.lora_b"])
            for layer in module.layers
            if f"{layer}.lora_a" in weights
        }
        if not layers:
            continue
        if len(module.layers) > 1 and not has_patterns:
            raise UserError(
                "[export] --adapter: expected adapters on whole modules of transformers, got one on "
                f"{next(iter(layers))}, which is a part of {module.name} there; add --merged to write the whole model"
            )
        factors = joined(module, layers) if len(module.layers) > 1 else layers[module.layers[0]]
        for factor, value in zip(FACTORS, factors, strict=True):
            found[tensor_name(module.name, factor)] = np.ascontiguousarray(value.T)
    chosen = [stack for stack in stacks_of(model) if f"{stack.layer}.lora_a" in weights]
    for name, stack in wrapped(chosen).items():
        a, b = (weights[f"{stack.layer}.{factor}"] for factor in FACTORS)
        for factor, value in zip(FACTORS, to_peft(stack, a, b), strict=True):
            found[tensor_name(name, factor)] = value
    return found


def _linear_modules(model: ModelConfig) -> dict[str, Module]:
    """Return the modules of transformers with linear layers that may have an adapter, by name."""
    linears, _ = adaptable_names(model)
    return {name: one for name, one in modules_of(model).items() if one.layers[0] in linears}


def require_adapter(folder: Path, place: str) -> JsonObject:
    """Return the settings of a folder that PEFT wrote; raise UserError for a folder of another kind."""
    file = folder / SETTINGS
    if not file.is_file():
        raise UserError(f"{place}: expected a folder of PEFT with {SETTINGS}, got {folder}, which has none")
    return read_object(file)


def read_adapter(folder: Path, model: ModelConfig, place: str) -> Adapter:
    """Return the adapters in a folder that PEFT wrote, for a base with this config. place: the prefix of messages.

    Raise UserError for a folder of another kind, unsupported settings, or adapters of another base; FormatError for
    damaged files.
    """
    settings, file = require_adapter(folder, place), folder / SETTINGS
    modules = modules_of(model)
    known, ranks = without_patterns(settings, modules)
    _require_computed(known, folder, place)
    rank, alpha = member(settings, "r", int, file), member(settings, "lora_alpha", float, file)
    dropout = member({"lora_dropout": 0.0, **settings}, "lora_dropout", float, file)
    for name, value, ok in (
        ("r", rank, rank > 0),
        ("lora_alpha", alpha, 0 <= alpha < math.inf),
        ("lora_dropout", dropout, 0 <= dropout < 1),
    ):
        if not ok:
            raise FormatError(str(file), 0, f"key '{name}': {value:g} is out of range")
    every, _ = adaptable_names(model)
    ranks = {**dict.fromkeys(modules, rank), **ranks}
    stacks = _stacks(settings, model, file, place)
    weights = _weights(folder, modules, every, rank, ranks, place, stacks)
    layers = {name.rpartition(".")[0] for name in weights}
    targets = _targets(layers, model)
    adapter = Adapter(LoraConfig(rank=rank, alpha=alpha, targets=targets, dropout=dropout), weights)
    _require_sizes(adapter, model, place)
    return adapter


def _targets(layers: set[str], model: ModelConfig) -> str:
    """Return lora.targets for these layers."""
    linears, stacks = adaptable_names(model)
    if layers.isdisjoint(linears) or not layers.issuperset(linears):
        return ",".join(shortest(layers, [*linears, *stacks]))
    return ",".join([ALL, *shortest(layers.difference(linears), stacks)])


def _stacks(settings: JsonObject, model: ModelConfig, file: Path, place: str) -> dict[str, Stack]:
    """Return the stacks of target_parameters by PEFT's name of the adapter; raise UserError for other parameters."""
    words = settings.get("target_parameters") or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise FormatError(str(file), 0, "key 'target_parameters': expected a list of names")
    every = stacks_of(model)
    for word in words:
        if not selected(every, [str(word)]):
            known = ", ".join(map(str, words_for(every, every))) or "none"
            raise UserError(
                f"{place}: {file}: target_parameters: expected stacks of experts of the base ({known}), "
                f"got {word!r}; merge it in PEFT (merge_and_unload) and give that folder as --base"
            )
    return wrapped(selected(every, list(map(str, words))))


def _require_computed(settings: Mapping[str, Json], folder: Path, place: str) -> None:
    """Raise UserError, with the value, for the first setting that mudd_core's adapters do not support."""
    for name, value in settings.items():
        if name in _WITHOUT_EFFECT or name in _READ:
            continue
        allowed = _FIXED.get(name, (None, False, [], {}))
        if not any(value == one and type(value) is type(one) for one in allowed):
            wanted = " or ".join(map(repr, allowed)) if name in _FIXED else "none"
            raise UserError(
                f"{place}: {folder / SETTINGS}: {name}: expected {wanted}, as adapters are computed "
                f"here, got {value!r}{_ADVICE.get(name, '')}"
            )


def _weights(
    folder: Path,
    modules: Mapping[str, Module],
    every: Sequence[str],
    rank: int,
    ranks: Mapping[str, int],
    place: str,
    stacks: Mapping[str, Stack],
) -> dict[str, Float32]:
    """Return the adapter tensors, with mudd_core's names and shapes, after checking ranks, finite values and pairs.

    every: the linear layers. rank: of a layer. ranks: of each module. stacks: of experts, by PEFT's name.
    """
    file = folder / TENSORS
    if not file.is_file():
        pickled = (
            f"; {_PICKLE} is a pickle, which runs code when opened" if (folder / _PICKLE).is_file() else ""
        )
        raise UserError(f"{place}: expected {TENSORS} in {folder}, which has none{pickled}")
    found: dict[str, dict[str, Float32]] = {}
    for name, tensor in stored_in([file]).items():
        at = tensor_of(name)
        if at is None:
            raise UserError(
                f"{place}: {file}: '{name}' is of no adapter of a linear layer (lora_A and lora_B)"
            )
        module, factor = at
        if module in stacks:
            found.setdefault(module, {})[factor] = _factor(
                file, name, factor, tensor, rank, stacks[module].experts
            )
            continue
        if module not in modules:
            raise UserError(
                f"{place}: {file}: '{module}' is no linear layer of the base; the adapter belongs to another model"
            )
        if modules[module].layers[0] not in every:  # every expert of a stack would be this one layer
            raise UserError(
                f"{place}: {file}: '{module}' is of a router, or of one expert as in transformers 4; "
                "merge it in PEFT (merge_and_unload) and give that folder as --base"
            )
        found.setdefault(module, {})[factor] = _factor(file, name, factor, tensor, ranks[module])
    for module, factors in found.items():
        if len(factors) < len(FACTORS):
            raise FormatError(str(file), 8, f"the adapter of '{module}' has one of its two tensors")
    if not found:
        raise FormatError(str(file), 8, "no tensor in it")
    if missing := [stack.name for name, stack in stacks.items() if name not in found]:
        raise FormatError(
            str(file), 8, f"no adapter of '{missing[0]}', which target_parameters of {SETTINGS} names"
        )
    layers: dict[str, Float32] = {}
    for name, factors in found.items():
        a, b = (factors[one] for one in FACTORS)
        if name in stacks:
            layers |= _of_stack(stacks[name], a, b, file)
            continue
        for layer, pair in _layers_of(modules[name], a, b, rank, place).items():
            layers |= {f"{layer}.{factor}": value for factor, value in zip(FACTORS, pair, strict=True)}
    return layers


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


def _require_sizes(adapter: Adapter, model: ModelConfig, place: str) -> None:
    """Raise UserError if the adapters have other layer sizes than the base."""
    store = Model(model, booked_only=True, lora=adapter.lora).store
    for name, value in adapter.weights.items():
        shape = tuple(store.describe(name)["shape"])
        if value.shape != shape:
            axis, what = (-2, "inputs") if name.endswith("a") else (-1, "outputs")
            raise UserError(
                f"{place}: expected adapters of this base, whose {name.rpartition('.')[0]} has {shape[axis]} {what}, "
                f"got one with {value.shape[axis]}; give the base that the adapter was trained on"
            )
