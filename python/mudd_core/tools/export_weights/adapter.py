"""Export a run with adapters: the adapters as a PEFT folder, or the weights with merged adapters.

The PEFT folder is loaded again to compare the logits. Merged weights are summed in fp32 and rounded once to the types
of the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, float32_of, made_tensor
from mudd_core.checkpoint.weights_folder import Last, write_folder
from mudd_core.config import Config, LoraConfig, ModelConfig
from mudd_core.engine.cut import Spread
from mudd_core.engine.lora import base_names, low_rank
from mudd_core.engine.model import Model
from mudd_core.graph.parameters import Adapters, Store
from mudd_core.interop.hf import SYSTEM
from mudd_core.interop.hf_images import text_name
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.imported import base_source, imported_types
from mudd_core.interop.peft_folder import read_adapter
from mudd_core.interop.peft_weights import SETTINGS, WEIGHTS
from mudd_core.interop.peft_written import adapter_settings, adapter_tensors
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.held_model import Alive, held_model, nothing

_PLACE = "[export] --adapter"


def base_name(asked: str | None, run: RunFolder, config: Config) -> str:
    """Return the base for adapter_config.json: --base, or else the folder that the run was tuned from.

    Without --base, raise UserError for a run that was not tuned from a Hugging Face folder.
    """
    if asked is not None:
        return asked
    if source := base_source(run):
        return source
    start = config.start.load_parameters_path
    raise UserError(
        f"{_PLACE}: expected a run that was tuned from a folder of Hugging Face, got one from "
        f"{start}; export that run to such a folder and name "
        "it with --base=FOLDER, or use --merged"
    )


def write_adapter(
    folder: Path,
    model: Model,
    base: str,
    files: Mapping[str, bytes],
    weights: Mapping[str, AnyTensor] | None = None,
    last: Last | None = None,
) -> int:
    """Write the adapters of a model, and return the number of tensors.

    base: the base's name. files: more files by name.

    weights: the model's weights by name, if the model itself has only some of them. last: as in write_folder.

    Raise UserError for adapters that PEFT does not support.
    """
    try:
        lora, plain = plain_adapters(model, model.parameters if weights is None else weights)
        # In the order of names, as PEFT writes them: then the files are equal byte for byte.
        tensors = dict(sorted(adapter_tensors(model.config, plain).items()))
        layers = [name.removesuffix(".lora_a") for name in plain if name.endswith(".lora_a")]
        settings = adapter_settings(model.config, lora, layers, base)
    except UserError:
        raise
    except ValueError as error:  # a family that transformers does not have
        raise UserError(
            f"{_PLACE}: {error}; --system=own writes the adapters with the names of mudd_core"
        ) from error
    names = (SETTINGS, WEIGHTS)
    write_folder(folder, settings, tensors, shard_bytes=1 << 62, files=files, names=names, last=last)
    return len(tensors)


def plain_adapters(model: Model, weights: Mapping[str, AnyTensor]) -> tuple[LoraConfig, dict[str, Float32]]:
    """Return settings and weights of adapters for the original base, with mudd_core's names.

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
    """Return the base tensors of a model with adapters, each computed on access. weights: all weights, by name."""
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
    """Load the adapters in a folder and a base, by name, as a model of this config.

    spread: the distribution of the model over ranks, which all make this call. alive: called for each tensor.
    """
    adapter = read_adapter(folder, model, _PLACE)
    return held_model(model, {**base, **adapter.weights}, spread, alive, adapter.lora)


def _before(adapters: Adapters, weights: Mapping[str, AnyTensor], name: str) -> Float32:
    """Return a base weight with the initial adapters added again (lora.init=pissa)."""
    layer, weight = name.removesuffix(".w"), float32_of(weights[name])
    if not adapters.initial or layer not in adapters.names:
        return weight
    a, b = (float32_of(weights[f"{layer}.lora_{factor}0"]) for factor in "ab")
    return weight + low_rank(a, b, adapters.scale)


def rounded_weights(
    model: ModelConfig, weights: Mapping[str, StoredTensor], kinds: Mapping[str, str]
) -> dict[str, StoredTensor]:
    """Return the weights with another type than float32, rounded to that type but stored as float32.

    kinds: the types by transformers' names. Values are computed on access. The access raises UserError for a weight
    that would become infinite.
    """
    assert isinstance(model, HfModel)
    rounded = {}
    for entry in SYSTEM.entries(model, {}):
        if kinds[entry.theirs] != "F32" and not entry.part:  # all matrices of a stack have one type
            weight = weights[entry.ours]
            make = partial(_near, weight, kinds[entry.theirs], entry.theirs)
            rounded[entry.ours] = made_tensor(weight.shape, np.float32, make)
    return rounded


def _near(weight: StoredTensor, kind: str, name: str) -> Float32:
    value = np.ascontiguousarray(float32_of(weight))
    near = np.empty_like(value)
    for begin in range(0, value.size, dtypes.AT_ONCE):
        part = slice(begin, begin + dtypes.AT_ONCE)
        given, found = value.reshape(-1)[part], near.reshape(-1)[part]
        found[:] = dtypes.as_float32(dtypes.rounded(given, kind))
        if bad := np.flatnonzero(np.isfinite(given) & ~np.isfinite(found)).tolist():
            raise UserError(
                f"[export] --merged: expected weights that {kind}, the type of the base, can hold, "
                f"got {given[bad[0]]:g} in '{name}'; use --adapter to keep the adapters separate"
            )
    return near


def base_types(run: RunFolder, model: ModelConfig) -> dict[str, str]:
    """Return the type of each tensor in the transformers folder, as in the base; F32 if it is unknown.

    run: the run that has the files of the base.
    """
    if not isinstance(model, HfModel):
        return {}
    names, known = SYSTEM.shapes(model, {}), imported_types(run)
    bare = {_bare(name): kind for name, kind in known.items()}
    kinds = list(known.values())
    usual = max(sorted(set(kinds)), key=kinds.count, default="F32")
    return {name: bare.get(_bare(name), usual) for name in names}


def _bare(name: str) -> str:
    """Return a name without its prefix, as some folders spell it."""
    return text_name(name).removeprefix("transformer.").removeprefix("gpt_neox.").removeprefix("model.")
