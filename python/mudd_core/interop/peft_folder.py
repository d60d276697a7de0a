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
from mudd_core.engine.lora import adapted_names
from mudd_core.engine.model import Model
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
_READ = frozenset(("r", "lora_alpha", "lora_dropout"))
_FIXED: Mapping[str, tuple[Json, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva"),  # other values change the base's weights too
}
_ADVICE = {
    "init_lora_weights": "; save_pretrained(FOLDER, path_initial_model_for_weight_conversion=INITIAL) of PEFT writes "
    "adapters of the base as it was",
    "target_parameters": "; stacks of experts and routers have no adapters here: merge them in PEFT (merge_and_unload) "
    "and give that folder as --base",
}


@dataclass(frozen=True)
class Adapter:
    """The adapters in a folder. lora: their settings; weights: float32, with mudd_core's names and shapes."""

    lora: LoraConfig
    weights: Mapping[str, Float32]


def adapter_settings(model: ModelConfig, lora: LoraConfig, layers: list[str], base: str) -> JsonObject:
    """Return the adapter_config.json for adapters on these mudd_core layers. base: name or folder of the base model."""
    modules = modules_of(model)
    counts = {name: sum(layer in layers for layer in module.layers) for name, module in modules.items()}
    asked = [name for name, count in counts.items() if count]
    return {
        **patterns(counts, lora.rank, lora.alpha),
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": modules[asked[0]].fan_in_first,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": short(lora.alpha),
        "lora_dropout": lora.dropout,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": list[Json](shortest(asked, modules)),
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
    for module in modules_of(model).values():
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
    return found


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
    every = adapted_names(model, ALL)
    ranks = {**dict.fromkeys(modules, rank), **ranks}
    weights = _weights(folder, modules, every, rank, ranks, place)
    layers = {name.rpartition(".")[0] for name in weights}
    targets = ALL if layers == set(every) else ",".join(shortest(layers, every))
    adapter = Adapter(LoraConfig(rank=rank, alpha=alpha, targets=targets, dropout=dropout), weights)
    _require_sizes(adapter, model, place)
    return adapter


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
) -> dict[str, Float32]:
    """Return the adapter tensors, with mudd_core's names and shapes, after checking ranks, finite values and pairs.

    every: the layers that may have an adapter. rank: of a layer. ranks: of each module.
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
        if module not in modules:
            raise UserError(
                f"{place}: {file}: '{module}' is no linear layer of the base; the adapter belongs to another model"
            )
        if modules[module].layers[0] not in every:  # every expert of a stack would be this one layer
            raise UserError(
                f"{place}: {file}: '{module}' is of a router or an expert, which have no adapters "
                "here; merge it in PEFT (merge_and_unload) and give that folder as --base"
            )
        found.setdefault(module, {})[factor] = _factor(file, name, factor, tensor, ranks[module])
    for module, factors in found.items():
        if len(factors) < len(FACTORS):
            raise FormatError(str(file), 8, f"the adapter of '{module}' has one of its two tensors")
    if not found:
        raise FormatError(str(file), 8, "no tensor in it")
    layers: dict[str, Float32] = {}
    for name, factors in found.items():
        a, b = (factors[one] for one in FACTORS)
        for layer, pair in _layers_of(modules[name], a, b, rank, place).items():
            layers |= {f"{layer}.{factor}": value for factor, value in zip(FACTORS, pair, strict=True)}
    return layers


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


def _factor(file: Path, name: str, factor: str, tensor: AnyTensor, rank: int) -> Float32:
    """Return a factor with mudd_core's shape. Raise FormatError for another rank than in the settings or for NaN or
    infinity.
    """
    shape = tuple(tensor.shape)
    has = shape[0 if factor == "lora_a" else 1] if len(shape) == 2 else -1
    if has != rank:
        raise FormatError(
            str(file), 8, f"tensor '{name}': expected rank {rank} of {SETTINGS}, got shape {shape}"
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
            axis, what = (0, "inputs") if name.endswith("a") else (1, "outputs")
            raise UserError(
                f"{place}: expected adapters of this base, whose {name.rpartition('.')[0]} has {shape[axis]} {what}, "
                f"got one with {value.shape[axis]}; give the base that the adapter was trained on"
            )
