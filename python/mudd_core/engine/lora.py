"""Low-rank adapters of a model: the linear layers and experts that have one, and the parameters that adapters add."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from mudd_core import _core, ops
from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, float32_of, made_tensor
from mudd_core.config import LoraConfig, ModelConfig
from mudd_core.config.mesh_fit import UNIT
from mudd_core.config.tune import ALL
from mudd_core.graph.parameters import Adapters, Store
from mudd_core.graph.recording import Recorder, running
from mudd_core.models import Batch, model_function

TRAINED = ("lora_a", "lora_b")
_INITIAL = ("lora_a0", "lora_b0")
_OWN = (*TRAINED, *_INITIAL)
# Without `_proj`: the stacks of transformers 5 (gate_up_proj), and the layers of each expert before.
_EXPERTS_IN_PEFT = ("gate_up", "gate", "up", "down", "w1", "w2", "w3")
# The stacks of a layer's experts: the adapter that changes them, and their place among the stacks that share its A.
_OF_STACK = {"gate": ("gate_up", 0), "up": ("gate_up", 1), "down": ("down", 0)}


def is_adapter(name: str) -> bool:
    """Return True if a parameter belongs to an adapter."""
    return name.rpartition(".")[2] in _OWN


def adapters_for(config: ModelConfig, lora: LoraConfig) -> Adapters:
    """Return the adapters for a model with this config.

    Raise UserError with the possible targets for an unknown target.
    """
    names = adapted_names(config, lora.targets)
    _require_computed(config, lora, names)
    return Adapters(frozenset(names), lora.rank, lora.scale, lora.dropout, lora.init == "pissa")


def adapted_names(config: ModelConfig, targets: str) -> list[str]:
    """Return the layers that `targets` selects: `all`, the last parts of names, or patterns for whole names.

    `all` means every linear layer. The experts of a layer are two more: `gate_up` and `down`.
    """
    linears, stacks = adaptable_names(config)
    names = [*linears, *stacks]
    asked = [word for part in targets.split(",") if (word := part.strip())]
    if not names:
        raise UserError(
            f"[config] tune.method: lora adapts linear layers, but this {config.family} model has none"
        )
    for word in asked:
        if not any(_targets(word, name) for name in (linears if word == ALL else names)):
            known = dict.fromkeys(name.rpartition(".")[2] for name in names)
            raise UserError(
                f"[config] lora.targets: expected all or linear layers of the model, got '{word}'; "
                f"the model has {', '.join(known)}, with full names such as "
                f"{names[0]}{_of_experts(stacks, word)}"
            )
    chosen = {name for name in names if any(word != ALL and _targets(word, name) for word in asked)}
    return [name for name in names if name in chosen or (ALL in asked and name in linears)]


def adaptable_names(config: ModelConfig) -> tuple[list[str], list[str]]:
    """Return the layers that may have an adapter: the linear ones, and the experts of each layer."""
    recorder = Recorder(Store(), training=False, samples=1, shards=1)
    with running(recorder):
        model_function(config)(config, Batch(recorder.input("inputs", (1, 1))), None)
    return recorder.linears, recorder.stacks


def _targets(word: str, name: str) -> bool:
    return word == ALL or word == name.rpartition(".")[2] or fnmatchcase(name, word)


def _of_experts(stacks: Sequence[str], word: str) -> str:
    """Return a hint for an unknown target that may name experts as transformers does; empty for other targets."""
    last = word.rpartition(".")[2].removesuffix("_proj")
    if not stacks or not ("expert" in word or last in _EXPERTS_IN_PEFT):
        return ""
    return "; all the experts of a layer have one adapter of gate and up, gate_up, and one of down: add gate_up,down"


def _require_computed(config: ModelConfig, lora: LoraConfig, names: Sequence[str]) -> None:
    """Raise UserError for settings that adapters of experts do not have."""
    stacks = set(adaptable_names(config)[1]).intersection(names)
    if not stacks:
        return
    for field, value, expected in (("dropout", f"{lora.dropout:g}", "0"), ("init", lora.init, "default")):
        if value != expected:
            raise UserError(
                f"[config] lora.{field}: expected {expected}, because {min(stacks)} of lora.targets is of experts, "
                f"got {value}; type lora.{field}={expected}, or leave the experts out of lora.targets"
            )


def require_shards(store: Store, ranks: int) -> None:
    """Raise UserError unless adapters of experts have whole units on each rank (contracts 25). ranks: mesh.expert."""
    shapes = {name: store.describe(name)["shape"] for name in store.names() if is_adapter(name)}
    sizes = {name: math.prod(shape) // ranks for name, shape in shapes.items() if len(shape) == 3}
    wrong = next((name for name, size in sizes.items() if size % UNIT), None)
    if wrong is None:
        return
    rank = store.adapters.rank
    step = math.lcm(*(UNIT // math.gcd(UNIT, size // rank) for size in sizes.values()))
    fitting = math.ceil(rank / step) * step
    raise UserError(
        f"[mesh] expert={ranks}: the experts of a rank have {sizes[wrong]:,} elements in {wrong}; expected a "
        f"multiple of {UNIT}, which keeps the bits of one process; use lora.rank={fitting}, or mesh.expert=1"
    )


def trained_of(names: Sequence[str]) -> list[str]:
    """Return the trainable adapter parameters among the names of all parameters."""
    return [name for name in names if name.rpartition(".")[2] in TRAINED]


def base_names(store: _core.ParamStore) -> list[str]:
    """Return the parameters of a model without those of adapters."""
    return [name for name in store.names() if not is_adapter(name)]


def own_names(store: _core.ParamStore) -> list[str]:
    """Return the names of the adapter parameters, or of all parameters if there are no adapters."""
    return [name for name in store.names() if is_adapter(name)] or list(store.names())


def low_rank(a: Float32, b: Float32, scale: float) -> Float32:
    """Return scale A B, with the same bits on every CPU."""
    made: Float32 = ops.linear(a * np.float32(scale), b)
    return made


def principal_factors(w: Float32, rank: int, scale: float) -> tuple[Float32, Float32]:
    """Return (A, B) such that scale A B is W truncated to its largest singular values, split evenly between A and B."""
    a, b = _core.principal_factors(np.ascontiguousarray(w), rank, scale)
    return a, b


def merged_tensors(weights: Mapping[str, AnyTensor], store: Store) -> dict[str, StoredTensor]:
    """Return the base's weights in float32 with scale A B added to adapted ones; each tensor is computed on request.

    weights: all parameters of a store with adapters, by name.
    """
    return {
        name: made_tensor(
            tuple(store.describe(name)["shape"]), np.float32, partial(_merged, weights, name, store.adapters)
        )
        for name in base_names(store)
    }


def _merged(weights: Mapping[str, AnyTensor], name: str, adapters: Adapters) -> Float32:
    values, layer, place = float32_of(weights[name]), name.removesuffix(".w"), 0
    if values.ndim == 3:
        outer, _, last = layer.rpartition(".")
        adapter, place = _OF_STACK.get(last, (last, 0))
        layer = f"{outer}.{adapter}"
    if layer not in adapters.names or not name.endswith(".w"):
        return values
    a, b = (float32_of(weights[f"{layer}.lora_{factor}"]) for factor in "ab")
    if values.ndim == 2:
        return values + low_rank(a, b, adapters.scale)
    rows = slice(place * adapters.rank, (place + 1) * adapters.rank)
    return np.stack(
        [w + low_rank(a[e], b[e, rows], adapters.scale) for e, w in enumerate(values)], dtype=np.float32
    )
