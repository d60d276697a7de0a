"""Writes the adapters of a run as a folder of PEFT, and loads it again to compare the logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.config import Config, LoraConfig
from mudd_core.engine.lora import base_names, low_rank
from mudd_core.engine.model import Model
from mudd_core.interop.imported import base_source
from mudd_core.interop.peft_folder import (
    SETTINGS,
    WEIGHTS,
    adapter_settings,
    adapter_tensors,
    read_adapter,
)
from mudd_core.interop.probe import difference, probe_ids
from mudd_core.run.store.run_folder import RunFolder

_PLACE = "[export] --adapter"


def base_name(asked: str | None, run: RunFolder, config: Config) -> str:
    """What adapter_config.json names as the base: --base, else the folder that the run was tuned from.

    UserError where that is no folder of transformers.
    """
    if asked is not None:
        return asked
    if source := base_source(run):
        return source
    start = config.start.load_parameters_path
    raise UserError(
        f"{_PLACE}: expected a run that was tuned from a folder of Hugging Face, got one from {start}; write that as "
        f"such a folder (export --workdir={start} --to=FOLDER) and name it with --base=FOLDER, or use --merged"
    )


def write_adapter(folder: Path, model: Model, base: str, files: Mapping[str, bytes]) -> int:
    """Write the adapters of a model; the number of tensors. base: its name. files: others, content by name.

    UserError for adapters that PEFT cannot have.
    """
    try:
        lora, weights = plain_adapters(model)
        tensors = adapter_tensors(model.config, weights)
        layers = [name.removesuffix(".lora_a") for name in weights if name.endswith(".lora_a")]
        settings = adapter_settings(model.config, lora, layers, base)
    except UserError:
        raise
    except ValueError as error:  # a family that transformers does not have
        raise UserError(f"{_PLACE}: {error}; --system=own keeps the adapters by our own names") from error
    write_folder(folder, settings, tensors, shard_bytes=1 << 62, files=files, names=(SETTINGS, WEIGHTS))
    return len(tensors)


def plain_adapters(model: Model) -> tuple[LoraConfig, dict[str, Float32]]:
    """Adapters beside the base as it was: settings, and weights by our names.

    With lora.init=pissa the base of the run lacks s A0 B0, so W + s (A B - A0 B0) is written: [A A0] and [B; -B0], of
    twice the rank and twice the alpha.
    """
    lora, weights = model.lora, model.parameters
    assert lora is not None
    found = {}
    for layer in sorted(model.store.adapters.names):
        a, b = weights[f"{layer}.lora_a"], weights[f"{layer}.lora_b"]
        if model.store.adapters.initial:
            a = np.concatenate([a, weights[f"{layer}.lora_a0"]], axis=1)
            b = np.concatenate([b, -weights[f"{layer}.lora_b0"]], axis=0)
        found[f"{layer}.lora_a"], found[f"{layer}.lora_b"] = a, b
    if not model.store.adapters.initial:
        return lora, found
    return replace(lora, rank=2 * lora.rank, alpha=2 * lora.alpha, init="default"), found


def adapter_difference(folder: Path, model: Model) -> tuple[float, float]:
    """As probe.difference, of the adapters in a folder beside the base of a model, and the model."""
    adapter = read_adapter(folder, model.config, _PLACE)
    again = Model(model.config, initialize=False, precision="fp32", lora=adapter.lora)
    adapters = model.store.adapters
    for name in base_names(model.store):
        weight, layer = model.parameters[name], name.removesuffix(".w")
        if adapters.initial and layer in adapters.names:
            a, b = (model.parameters[f"{layer}.lora_{factor}0"] for factor in "ab")
            weight = np.asarray(weight + low_rank(a, b, adapters.scale))
        again.set_parameter(name, weight)
    for name, value in adapter.weights.items():
        again.set_parameter(name, value)
    return difference(again.logits(probe_ids(model.config)), model.logits(probe_ids(model.config)))
