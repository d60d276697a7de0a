"""Adapters as PEFT writes them: the values of adapter_config.json, and the tensors of adapter_model.safetensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32, Json, JsonObject
from mudd_core.config import LoraConfig, ModelConfig
from mudd_core.engine.lora import adaptable_names
from mudd_core.interop.peft_experts import stacks_of, to_peft, words_for, wrapped
from mudd_core.interop.peft_joined import joined, patterns, short
from mudd_core.interop.peft_names import FACTORS, Module, modules_of, shortest, tensor_name


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
