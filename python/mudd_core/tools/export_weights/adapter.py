"""Writes the adapters of a run as a folder of PEFT, and loads it again to compare the logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, float32_of, made_tensor
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.config import Config, LoraConfig, ModelConfig
from mudd_core.engine.cut import Spread
from mudd_core.engine.lora import base_names, low_rank
from mudd_core.engine.model import Model
from mudd_core.graph.parameters import Adapters, Store
from mudd_core.interop.imported import base_source
from mudd_core.interop.peft_folder import (
    SETTINGS,
    WEIGHTS,
    adapter_settings,
    adapter_tensors,
    read_adapter,
)
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.held_model import Alive, held_model, nothing

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


def write_adapter(
    folder: Path,
    model: Model,
    base: str,
    files: Mapping[str, bytes],
    weights: Mapping[str, AnyTensor] | None = None,
) -> int:
    """Write the adapters of a model; the number of tensors. base: its name. files: others, content by name.

    weights: those of the model by name, where it does not hold all of them.

    UserError for adapters that PEFT cannot have.
    """
    try:
        lora, plain = plain_adapters(model, model.parameters if weights is None else weights)
        tensors = adapter_tensors(model.config, plain)
        layers = [name.removesuffix(".lora_a") for name in plain if name.endswith(".lora_a")]
        settings = adapter_settings(model.config, lora, layers, base)
    except UserError:
        raise
    except ValueError as error:  # a family that transformers does not have
        raise UserError(f"{_PLACE}: {error}; --system=own keeps the adapters by our own names") from error
    write_folder(folder, settings, tensors, shard_bytes=1 << 62, files=files, names=(SETTINGS, WEIGHTS))
    return len(tensors)


def plain_adapters(model: Model, weights: Mapping[str, AnyTensor]) -> tuple[LoraConfig, dict[str, Float32]]:
    """Adapters beside the base as it was: settings, and weights by our names.

    With lora.init=pissa the base of the run lacks s A0 B0, so W + s (A B - A0 B0) is written: [A A0] and [B; -B0], of
    twice the rank and twice the alpha.
    """
    lora = model.lora
    assert lora is not None
    found = {}
    for layer in sorted(model.store.adapters.names):
        a, b = (float32_of(weights[f"{layer}.lora_{factor}"]) for factor in "ab")
        if model.store.adapters.initial:
            a0, b0 = (float32_of(weights[f"{layer}.lora_{factor}0"]) for factor in "ab")
            a, b = np.concatenate([a, a0], axis=1), np.concatenate([b, -b0], axis=0)
        found[f"{layer}.lora_a"], found[f"{layer}.lora_b"] = a, b
    if not model.store.adapters.initial:
        return lora, found
    return replace(lora, rank=2 * lora.rank, alpha=2 * lora.alpha, init="default"), found


def base_tensors(store: Store, weights: Mapping[str, AnyTensor]) -> dict[str, StoredTensor]:
    """The base of a model with adapters, each made when it is asked for. store: of the model; weights: all, by name."""
    return {
        name: made_tensor(weights[name].shape, np.float32, partial(_before, store.adapters, weights, name))
        for name in base_names(store)
    }


def adapted_model(
    folder: Path,
    model: ModelConfig,
    base: Mapping[str, AnyTensor],
    spread: Spread | None = None,
    alive: Alive = nothing,
) -> Model:
    """The model of the adapters in a folder and a base, by name, of this config.

    spread: how ranks hold the model between them; all of them make this call. alive: called for each tensor.
    """
    adapter = read_adapter(folder, model, _PLACE)
    return held_model(model, {**base, **adapter.weights}, spread, alive, adapter.lora)


def _before(adapters: Adapters, weights: Mapping[str, AnyTensor], name: str) -> Float32:
    """A weight of the base, with what the adapters began with added again (lora.init=pissa)."""
    layer, weight = name.removesuffix(".w"), float32_of(weights[name])
    if not adapters.initial or layer not in adapters.names:
        return weight
    a, b = (float32_of(weights[f"{layer}.lora_{factor}0"]) for factor in "ab")
    return weight + low_rank(a, b, adapters.scale)
