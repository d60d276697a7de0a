"""The types of a run's frozen weights, from its checkpoints or from train.frozen_dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint.weights import weight_files
from mudd_core.config import Config, ModelConfig
from mudd_core.config.schema import lora_of
from mudd_core.engine.frozen import frozen_types, stored_note
from mudd_core.run.build.lent_weights import lent_weights
from mudd_core.run.build.start_source import base_path, run_and_step
from mudd_core.run.store.checkpoints import Checkpoints

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


@dataclass(frozen=True)
class StoredTypes:
    """The types of weights by name, from a run's checkpoints or its initial weights; empty for random weights.

    resumed: the types come from the run's own checkpoints. base: the local path of the base of adapters.
    """

    found: Mapping[str, str]
    resumed: bool
    base: Path | None = None

    def of(self, shape: ModelConfig, config: Config) -> dict[str, str]:
        """Return "bfloat16" or "float16" by name for frozen weights that are not fp32 (`stored` of Model)."""
        if not config.trained:
            return {}
        store = _booked(shape, config)
        return frozen_types(store, config, self.found, self.resumed)

    def lent(self, shape: ModelConfig, config: Config) -> dict[str, Array]:
        """Return the frozen weights that stay in the base's file.

        With PiSSA there are none, because it changes the weights.
        """
        if self.base is None or config.lora.init == "pissa":
            return {}
        store = _booked(shape, config)
        shapes = {name: tuple(store.describe(name)["shape"]) for name in store.names()}
        return lent_weights(self.base, self.of(shape, config), shapes)


def stored_in(config: Config, checkpoints: Checkpoints | None = None) -> StoredTypes:
    """Return the types in the run's own checkpoints; without checkpoints, the types in its initial weights.

    Only headers and manifests are read, and only if weights are frozen.
    """
    if not config.trained:
        return StoredTypes({}, False)
    own = checkpoints if config.tune.method != "lora" else None  # checkpoints of LoRA contain only adapters
    found = None if own is None else own.types()
    if found is not None:
        return StoredTypes(found, True)
    given = config.start.load_parameters_path and config.train.frozen_dtype == "stored"
    folder = checkpoints.run if checkpoints is not None else None
    source = base_path(config, folder) if config.start.load_parameters_path else None
    found = _types_of_source(source) if given and source is not None else {}
    return StoredTypes(found, False, source if config.tune.method == "lora" else None)


def types_note(model: Model, config: Config, checkpoints: Checkpoints | None) -> str:
    """Return a note about the weights of a new model that are stored in 16 bits; empty if there are none."""
    note = stored_note(model.store)
    fresh = checkpoints is None or not checkpoints.steps()
    rounds = note and fresh and not config.start.load_parameters_path
    return f"{note}; their initial values are rounded to it" if rounds else note


def require_types(model: Model, config: Config) -> None:
    """Raise UserError if train.frozen_dtype requests other types than a given model has."""
    for name, kind in frozen_types(model.store, config, {}, resumed=False).items():
        if (has := model.store.describe(name)["stored"]) != kind:
            raise UserError(
                f"[config] train.frozen_dtype: expected {has}, in which the given model stores '{name}', got "
                f"{kind}; create the model with mc.Model(..., stored={{'{name}': '{kind}'}})"
            )


def _booked(shape: ModelConfig, config: Config) -> _core.ParamStore:
    """Return the parameter store of a run's model, planned without memory."""
    from mudd_core.engine.model import Model

    return Model(shape, booked_only=True, lora=lora_of(config)).store


def header_types(path: Path) -> dict[str, str]:
    """Return the types of tensors with two or more axes in a safetensors file or folder."""
    found: dict[str, str] = {}
    for file in weight_files(path):
        tensors = _core.SafetensorsFile(str(file)).tensors()
        found |= {name: dtype for name, dtype, shape, _, _ in tensors if len(shape) > 1}
    return found


def _types_of_source(source: Path) -> dict[str, str]:
    run, step = run_and_step(source, state=False)
    try:
        if run is None:
            return header_types(source)
        if step < 0:
            return Checkpoints(run).types() or {}
        return Checkpoints(run).types_of(step)
    except (FormatError, OSError):  # the error is raised when the weights are read
        return {}
