"""Read a folder of LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import member
from mudd_core.base.types import Float32, Json, JsonObject
from mudd_core.config import LoraConfig, ModelConfig
from mudd_core.config.tune import ALL
from mudd_core.engine.lora import adaptable_names
from mudd_core.engine.model import Model
from mudd_core.interop.peft_experts import Stack, selected, stacks_of, words_for, wrapped
from mudd_core.interop.peft_joined import without_patterns
from mudd_core.interop.peft_names import modules_of, shortest
from mudd_core.interop.peft_weights import SETTINGS, Expected, adapter_weights
from mudd_core.run.store.json_files import read_object

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
    linears, _ = adaptable_names(model)
    ranks = {**dict.fromkeys(modules, rank), **ranks}
    stacks = _stacks(settings, model, file, place)
    weights = adapter_weights(folder, Expected(modules, linears, rank, ranks, stacks, place))
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
