"""Weights, batches and gradients of the original programs, under their names and in their shapes.

`load_original` returns a Model that computes what the original program computes; `export_original` is its inverse.
"""

from __future__ import annotations

import importlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_text
from mudd_core.base.show.printable import visible_line
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor
from mudd_core.checkpoint.weights import stored_weights
from mudd_core.config import ModelConfig
from mudd_core.config.check import model_faults
from mudd_core.config.programs import NAMES, Programs
from mudd_core.engine.cut import Spread
from mudd_core.engine.model import Model
from mudd_core.interop.layout import Entry, TheirTensors, to_ours
from mudd_core.interop.lost_fields import lost_fields
from mudd_core.interop.settings import Settings
from mudd_core.interop.system import Original, System

__all__ = ["SYSTEMS", "Entry", "Original", "System", "export_original", "load_original", "systems"]


class WeightsProgram(Protocol):
    """The part of an original program's module that readers and writers of weights use."""

    systems: ClassVar[Mapping[str, str]]
    """The names of its formats, each with the module that has the SYSTEM."""

    exports: ClassVar[Mapping[str, tuple[str, ...]]]
    """The formats for a family that Hugging Face lacks, by family; the one of published weights comes first."""


def programs_with_weights() -> dict[str, WeightsProgram]:
    """Return every original program by its name."""
    return dict(zip(NAMES, Programs[WeightsProgram](), strict=True))


@cache
def systems() -> dict[str, str]:
    """Return the name of every weight format, with the module that has its SYSTEM."""
    found = {"hf": "mudd_core.interop.hf"}
    for program in programs_with_weights().values():
        found |= program.systems
    return dict(sorted(found.items()))


def __getattr__(name: str) -> tuple[str, ...]:
    # The programs import this package, so their names are known only after its import.
    if name == "SYSTEMS":
        return tuple(systems())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


_NAMED = 8  # kinds of tensors that a note lists


@dataclass(frozen=True)
class Theirs:
    """The opened weights of an original program: its settings, the mudd_core config for them, and its tensors.

    left_out: names of further tensors that the original program does not read.
    """

    system: System[ModelConfig]
    settings: JsonObject
    config: ModelConfig
    tensors: Mapping[str, AnyTensor]
    left_out: Sequence[str] = ()

    def note(self) -> str:
        """Return a line about the tensors that are left out; empty if there are none."""
        if not self.left_out:
            return ""
        kinds = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in self.left_out)
        return (
            f"tensors that the original program does not read are left out ({len(self.left_out)}): "
            f"{', '.join(visible_line(kind) for kind in list(kinds)[:_NAMED])}{', ...' if len(kinds) > _NAMED else ''}"
        )

    def ours(self, store: _core.ParamStore) -> dict[str, StoredTensor]:
        """Return the mudd_core tensors by name; each is read when it is used. store: from a model of this config."""
        shapes = {name: tuple(store.describe(name)["shape"]) for name in store.names()}
        return to_ours(self.system.entries(self.config, self.settings), self.tensors, shapes)


@contextmanager
def what_fits() -> Iterator[None]:
    """Raise UserError for settings that this program does not compute, and for weights that do not fit them."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:  # raised by the modules of the systems
        raise UserError(str(error)) from error


@what_fits()
def read_original(
    system: str, config: Settings | str | Path, weights: Mapping[str, npt.ArrayLike] | str | Path
) -> Theirs:
    """Open the weights of an original program and check names and shapes. It has the arguments of load_original."""
    page = _system(system)
    with _of_other_types():
        settings = page.of_text(_settings(config))
        page.require(settings)
    given = _read(weights) if isinstance(weights, str | Path) else _arrays(weights)
    tensors = {name: tensor for name, tensor in given.items() if not page.unused(settings, name)}
    page, read = page.reading(settings, tensors)
    kept = {id(tensor) for tensor in read.values()}  # reading may rename them
    left_out, tensors = [name for name, tensor in tensors.items() if id(tensor) not in kept], read
    model_config = _model_config(page, settings, tensors)
    # checked before memory is allocated for the tensors
    for name, shape in page.shapes(model_config, settings).items():
        if page.unused(settings, name):
            continue
        if name not in tensors:
            raise ValueError(f"[interop] weights: '{name}' is missing")
        if tensors[name].shape != tuple(shape):
            raise ValueError(
                f"[interop] weights: '{name}' has shape {tensors[name].shape}, expected {tuple(shape)}"
            )
    return Theirs(page, settings, model_config, tensors, left_out)


@what_fits()
def load_original(
    system: str,
    config: Settings | str | Path,
    weights: Mapping[str, npt.ArrayLike] | str | Path,
    *,
    spread: Callable[[ModelConfig], Spread] = lambda model: Spread(),
    alive: Callable[[], None] = lambda: None,
) -> Original:
    """Return a Model with the weights of an original program.

    system: one of SYSTEMS. config: the original's settings, or the path of a JSON file with them. weights: arrays with
    the original's names and shapes, or a safetensors file or folder, which is read one tensor at a time. spread: a
    function that returns the distribution of the model over ranks; every rank must then make this call. alive: called
    once per tensor.

    The model's logits, loss and loss_and_gradients accept the original's batches, and gradients have its names. Raise
    UserError (a ValueError) for settings or weights that do not fit, and FormatError for a damaged file.
    """
    theirs = read_original(system, config, weights)
    held = spread(theirs.config)
    model = Original(
        theirs.system, theirs.settings, theirs.config, comm=held.comm, experts=held.experts, cut=held.cut
    )
    tensors = theirs.ours(model.store)
    if note := theirs.note():
        warnings.warn(f"[{system}] {note}", UserWarning, stacklevel=3)
    for name, tensor in tensors.items():
        alive()
        if model.store.holds(0, name):
            model.set_parameter(name, np.asarray(tensor))
    return model


def _arrays(weights: Mapping[str, npt.ArrayLike]) -> dict[str, AnyTensor]:
    return {name: np.asarray(array) for name, array in weights.items()}


def export_original(system: str, model: Model) -> tuple[JsonObject, dict[str, Array]]:
    """Return (settings, weights by name) of a model as the original program has them; the inverse of load_original.

    Raise ValueError if the original program has no equivalent for a config field that changes logits. Warn
    (UserWarning) about each field that changes training only.
    """
    settings, weights = export_tensors(system, model)
    return settings, dict(weights)


def export_tensors(
    system: str, model: Model, ours: Mapping[str, AnyTensor] | None = None
) -> tuple[JsonObject, TheirTensors]:
    """Do the same as export_original, but compute each tensor when it is read.

    ours: the weights to export, if the model's own weights are sharded across ranks.
    """
    page = _system(system)
    if isinstance(model, Original) and type(model.system) is type(page):
        return dict(model.original_config), model.original_weights()
    if model.config.family not in page.families:
        known = ", ".join(page.families)
        raise ValueError(f"[{system}] family: expected one of {known}, got '{model.config.family}'")
    settings = page.original_config(model.config)
    entries, shapes = page.entries(model.config, settings), page.shapes(model.config, settings)
    for note in lost_fields(system, page, model.config, settings, shapes):
        warnings.warn(f"[{system}] {note}", UserWarning, stacklevel=3)
    if homeless := sorted(set(model.store.names()) - {entry.ours for entry in entries}):
        raise ValueError(f"[{system}] parameters: the other program has no place for '{homeless[0]}'")
    return settings, TheirTensors(entries, model.parameters if ours is None else ours, shapes)


@contextmanager
def _of_other_types() -> Iterator[None]:
    """Raise UserError if a setting has a type that the original does not use."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ArithmeticError) as error:
        raise UserError(f"[interop] settings: {type(error).__name__}: {error}") from error


def _model_config(
    page: System[ModelConfig], settings: JsonObject, arrays: Mapping[str, AnyTensor]
) -> ModelConfig:
    """Return the mudd_core config for the original's settings. Raise ValueError if it breaks a rule of the family."""
    with _of_other_types():
        found = page.model_config(settings, {name: array.shape for name, array in arrays.items()})
    faults = model_faults(found)
    if faults:
        raise ValueError(f"[interop] settings: {faults[0]}")
    return found


def _read(path: str | Path) -> dict[str, AnyTensor]:
    return {**stored_weights(path, warns=False)}  # no warning: files of another program are expected here


def _system(name: str) -> System[ModelConfig]:
    if name not in systems():
        raise ValueError(f"[interop] system: expected one of {', '.join(systems())}, got '{name}'")
    page: System[ModelConfig] = importlib.import_module(systems()[name]).SYSTEM
    return page


def _settings(config: Settings | str | Path) -> JsonObject:
    if isinstance(config, Mapping):
        return dict(config)
    path = local(config, "[interop] config")
    path = path / "config.json" if path.is_dir() else path
    if not path.exists() and (theirs := path.with_name("params.json")).is_file():
        raise UserError(
            f"[interop] expected {path} of transformers, got {theirs} of Mistral's own program; "
            "fetch the folder with its config.json and model*.safetensors files, `hf download "
            "OWNER/NAME --local-dir FOLDER`, and pass that FOLDER"
        )
    try:
        settings = json.loads(read_text(path))
    except OSError as error:
        raise UserError(
            f"[interop] expected a JSON file with the settings of the model, got {path}: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        place = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise FormatError(str(path), place, f"not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise UserError(f"[interop] {path}: expected a JSON object, got {type(settings).__name__}")
    return settings
