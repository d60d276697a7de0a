"""The base of a run that trains adapters. It is read once into the model, and identified by its hash."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.surroundings import typed_program
from mudd_core.base.types import Float32, Json, JsonObject
from mudd_core.checkpoint import final_hash, is_weight, whole_parts
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, float32_of, made_tensor
from mudd_core.config import Config
from mudd_core.engine.frozen import set_weight, stored_as
from mudd_core.engine.lora import base_names, low_rank, principal_factors, trained_of
from mudd_core.graph.parameters import Store
from mudd_core.run.build.grow import start_weights
from mudd_core.run.build.lent_weights import is_lent, let_go
from mudd_core.run.build.start_source import base_path, read_source
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

BASE_FACT = "base_sha256"  # key in run.json; a run whose base has another hash is rejected
_MEMBER = "base"  # key in a checkpoint's state
_FIELD = "start.load_parameters_path"
_BEGINS = "[config] lora.start_from"


@dataclass(frozen=True)
class Base:
    """The base of adapters. sha256: the hash of its stored weights (checkpoint.final_hash).

    weights: the adapted matrices from which the initial adapters were subtracted; none in other cases. begins: the
    source of the initial adapters (lora.start_from); empty if they are random.
    """

    path: Path
    sha256: str
    rounded: int
    weights: Mapping[str, AnyTensor]
    begins: str = ""

    @property
    def facts(self) -> JsonObject:
        """The facts that are stored in run.json."""
        return {BASE_FACT: self.sha256}

    @property
    def state(self) -> JsonObject:
        """The state that is stored in every checkpoint."""
        return {_MEMBER: {"sha256": self.sha256, "path": str(self.path)}}

    @property
    def note(self) -> str:
        """A line for the user about the origin of the frozen weights."""
        rounded = (
            f"; {self.rounded:,} of its weights were rounded (train.frozen_dtype)" if self.rounded else ""
        )
        return f"adapters of the base {self.path} (SHA-256 {self.sha256[:12]}){rounded}"

    def settle(self, model: Model, *, fresh: bool) -> None:
        """Subtract the initial adapters from their matrices (lora.init=pissa), or load the adapters of lora.start_from.

        fresh: the adapters are new; otherwise they have the values of a checkpoint. All ranks must call this.
        """
        adapters = model.store.adapters
        for name, weight in self.weights.items():
            layer = name.removesuffix(".w")
            whole = float32_of(weight)
            if fresh:
                for factor, value in zip(
                    "ab", principal_factors(whole, adapters.rank, adapters.scale), strict=True
                ):
                    set_weight(model.store, f"{layer}.lora_{factor}", value)
                    set_weight(model.store, f"{layer}.lora_{factor}0", value)
            a, b = (model.parameters[f"{layer}.lora_{factor}0"] for factor in "ab")
            set_weight(model.store, name, whole - low_rank(a, b, adapters.scale))
        if fresh and self.begins:
            _take_adapters(model, self.begins)
        if self.weights:
            model.store.repack()


def load_base(config: Config, model: Model, folder: RunFolder | None) -> Base:
    """Load the base's weights into a model with adapters, one tensor at a time; adapters keep their values.

    folder: the folder of the run, which may contain the base. Raise UserError if the base does not fit this model.
    """
    path = base_path(config, folder)
    source = read_source(path)
    if source.config is not None and source.config.tune.method == "lora":
        raise UserError(
            f"[start] load_parameters_path: expected a whole model, got {path}, whose checkpoints "
            f"contain only adapters; name its base, {source.config.start.load_parameters_path}, or "
            f"first export the whole model: {shlex.join([*typed_program(), 'export', '--merged'])}"
        )
    weights = {name: tensor for name, tensor in source.tensors.items() if is_weight(name)}
    rounded, lent = 0, model.store.lent
    there = {name for name in lent if name in weights and is_lent(lent, name, weights[name])}
    for name, value in start_weights(model, source, names=base_names(model.store), there=there):
        rounded += set_weight(model.store, name, value)
    model.store.repack()  # updates the packed copies of weights that ranks share
    let_go({name: lent[name] for name in there})
    adapters = model.store.adapters
    kept = {f"{name}.w": weights[f"{name}.w"] for name in sorted(adapters.names) if adapters.initial}
    return Base(path.absolute(), weights_sha256(weights), rounded, kept, config.lora.start_from)


def weights_sha256(weights: Mapping[str, AnyTensor]) -> str:
    """Return the SHA-256 of the stored weights of a base."""
    return final_hash(whole_parts({name: tensor for name, tensor in weights.items() if is_weight(name)}))


def tensors_with_base(
    config: Config, model: Model, folder: RunFolder, own: Mapping[str, StoredTensor]
) -> dict[str, StoredTensor]:
    """Return all weights of a model with adapters by name, read on request: from its checkpoint, else from the base.

    own: the weights of the model's checkpoint, whose adapters have this base (require_base). The result does not
    reference the memory of the model.
    """
    found = read_source(base_path(config, folder)).tensors
    store = _booked(model)
    adapters = store.adapters
    weights = dict(own)
    for name in base_names(store):
        tensor, layer = found[name], name.removesuffix(".w")
        if adapters.initial and layer in adapters.names and name.endswith(".w"):
            shape = tuple(store.describe(name)["shape"])
            tensor = made_tensor(
                shape, np.float32, partial(_without_initial, tensor, layer, own, adapters.scale)
            )
        weights[name] = stored_as(store, name, tensor)
    return weights


def _booked(model: Model) -> Store:
    """Return the parameter store of a model, planned without memory."""
    from mudd_core.engine.model import Model

    kinds = {name: model.store.describe(name)["stored"] for name in model.store.names()}
    narrow = {name: kind for name, kind in kinds.items() if kind != "float32"}
    return Model(model.config, booked_only=True, stored=narrow, lora=model.lora).store


def _without_initial(weight: AnyTensor, layer: str, own: Mapping[str, StoredTensor], scale: float) -> Float32:
    a, b = (float32_of(own[f"{layer}.lora_{factor}0"]) for factor in "ab")
    return float32_of(weight) - low_rank(a, b, scale)


def _take_adapters(model: Model, path: str) -> None:
    """Load adapters from a run, a step or a file; raise UserError if layers, sizes or the base differ."""
    place = local(path, _BEGINS)
    if not place.exists():
        raise UserError(f"{_BEGINS}: expected initial adapters, got '{path}', which does not exist")
    source = read_source(
        place, warns=False
    )  # tune --adapter has just written this file, so no warning is needed
    names = trained_of(model.store.names())
    for name in names:
        held, shape = source.tensors.get(name), tuple(model.store.describe(name)["shape"])
        if held is None or held.shape != shape:
            got = "none" if held is None else list(held.shape)
            raise UserError(f"{_BEGINS}: expected '{name}' of shape {list(shape)} in {path}, got {got}")
    if extra := sorted(set(source.tensors) - set(names)):
        raise UserError(
            f"{_BEGINS}: '{extra[0]}' of {path} has no place in this model ({len(extra)} left over)"
        )
    for name in names:
        set_weight(model.store, name, np.asarray(source.tensors[name]))


def require_base(base: Base, state: Json, place: Path) -> None:
    """Raise UserError unless a base is the base named in the state of the adapters' checkpoint."""
    saved = state.get(_MEMBER) if isinstance(state, dict) else None
    sha256 = saved.get("sha256") if isinstance(saved, dict) else None
    if not isinstance(saved, dict) or not isinstance(sha256, str):
        raise FormatError(str(place), 0, "state: the base of the adapters is missing")
    if sha256 != base.sha256:
        raise UserError(
            f"[lora] {_FIELD}: expected the base of these adapters, {saved.get('path')} (SHA-256 "
            f"{sha256[:12]}), got {base.path} ({base.sha256[:12]}); restore that base, or name its "
            f"new place with --{_FIELD}=FOLDER"
        )
