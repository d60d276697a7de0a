"""Checks of arguments that are easy to confuse: a config, its name, a model config, a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes
from mudd_core.config import FAMILIES, Config, ModelConfig, load_config
from mudd_core.config.check import model_faults
from mudd_core.config.own_optimizers import run_named_optimizers


def run_config(config: Config | str | Path | None, place: str = "Trainer") -> Config:
    """Return the config of a run; load a name or path. Raise TypeError for any other value. place: for messages."""
    if isinstance(config, str | Path):
        return load_config(config)
    if isinstance(config, Config):
        run_named_optimizers(config.optim)
        return config
    hint = 'mc.load_config("tiny.py")'
    if isinstance(config, tuple(family.config for family in FAMILIES.values())):
        hint = "mc.Config(model=...)"
    elif isinstance(config, Mapping):
        hint = 'mc.load_config("tiny.py", {"train.steps": 10}), with your fields in the dict'
    given = "nothing" if config is None else kind_of(config)
    raise TypeError(
        f"[{place}] config: expected a Config or the name of a config file, got {given}; pass {hint}"
    )


def second_folder(place: str, run: str | Path, workdir: str) -> UserError:
    """Return the error for a work directory that is passed with the folder of a run. place: for messages."""
    return UserError(
        f"[{place}] workdir: expected none with {run}, the folder of a run, got '{workdir}'; "
        "leave workdir out, or pass a config and the new folder"
    )


def require_model_config(config: ModelConfig) -> None:
    """Raise TypeError unless `config` is the config of a family, ValueError if it is incomplete or invalid."""
    if not (hasattr(config, "family") and hasattr(config, "vocab_size")):
        raise _no_model_config(config)
    if isinstance(config, type):
        raise TypeError(
            f"[Model] config: expected a model config, got the class {config.__name__}; pass an object: "
            f"{_example(config.__name__)}"
        )
    if config.vocab_size <= 0 or config.max_seq_len <= 0:
        raise ValueError(
            f"[Model] config: expected positive vocab_size and max_seq_len, got {config.vocab_size} and "
            f"{config.max_seq_len}; pass one like {_example(type(config).__name__)}"
        )
    if faults := model_faults(config):
        raise ValueError(f"[Model] {faults[0]}")


def checked_weight(name: str, value: npt.ArrayLike, shape: Sequence[int]) -> Array:
    """Return the values of a parameter as an array: float16 and BF16 arrays unchanged, lists of numbers as float32.

    Raise TypeError for an array of another dtype or a value without numbers, ValueError for another shape.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # the rows have different lengths
        raise ValueError(f"[model] {name}: expected an array of shape {tuple(shape)}: {error}") from None
    is_weight = array.dtype in (dtypes.BF16, np.float16, np.float32)
    # A list is converted, but an array is not.
    if not is_weight and (array is value or array.dtype.kind not in "fiu"):
        raise TypeError(f"[model] {name}: expected numbers as float32 or float16, got {array.dtype}")
    if array.shape != tuple(shape):
        raise ValueError(f"[model] {name}: expected shape {tuple(shape)}, got {array.shape}")
    return array if array.dtype in (dtypes.BF16, np.float16) else np.asarray(array, np.float32)


def require_batch(batch: Mapping[str, npt.ArrayLike]) -> None:
    """Raise TypeError unless `batch` maps names to arrays."""
    if not isinstance(batch, Mapping) or not all(isinstance(name, str) for name in batch):
        raise TypeError(
            f'[model] batch: expected {{"inputs": ids, "targets": ids}} with ids [B, T], got {kind_of(batch)}; '
            "targets are the inputs shifted by one: ids[:, :-1] and ids[:, 1:]"
        )


def _no_model_config(config: ModelConfig | str | Path | Mapping[str, int]) -> TypeError:
    hint = f"one like {_example('TransformerPPConfig')}"
    if isinstance(config, Mapping):
        hint = 'mc.load_config("tiny.py", {"model": ...}), with your dict, or ' + hint
    elif isinstance(config, str | Path) and Path(config).is_dir():
        return TypeError(
            f"[Model] config: expected a model config, got the folder '{config}'; type "
            f'model, tokenizer = mc.load("{config}")'
        )
    elif isinstance(config, str | Path) and Path(config).suffix == ".py":
        hint = f'mc.load_config("{config}")'
    return TypeError(f"[Model] config: expected a model config, got {kind_of(config)}; pass {hint}")


def _example(name: str) -> str:
    return f"mc.{name}(vocab_size=256, max_seq_len=64)"


def kind_of(value: object) -> str:
    """Return a description of a wrong value for a message: its type, or a string itself."""
    return f"the string {value!r}" if isinstance(value, str) else f"a value of type {type(value).__name__}"
