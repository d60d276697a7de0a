"""A folder with one model: config.json with the config and a hash of the weights, safetensors, and the tokenizer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import member, object_in
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint import dtypes, final_hash, whole_parts
from mudd_core.checkpoint.weights import stored_in, weight_files
from mudd_core.checkpoint.weights_folder import Last, Later, write_folder
from mudd_core.config.saved import from_dict
from mudd_core.engine.frozen import NARROW, set_weight, weight_view

if TYPE_CHECKING:
    from mudd_core import _core
    from mudd_core.config import LoraConfig, ModelConfig
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.bare_model import BareModel

FORMAT = "mudd_core model 1"  # the key "format" of config.json
_SETTINGS = "config.json"
_SHARD_BYTES = 4 << 30


@dataclasses.dataclass(frozen=True)
class SavedModel:
    """The content of a folder of write_model: arguments of Model, loss normalization, and stored weights by name."""

    config: ModelConfig
    precision: str
    normalize: str
    stored: dict[str, str]
    weights: dict[str, Array]
    lora: LoraConfig | None = None


def is_model_folder(folder: Path) -> bool:
    """Return True if the config.json of a folder is from write_model."""
    return object_in(folder / _SETTINGS).get("format") == FORMAT


def write_model(model: BareModel, folder: str | Path, tokenizer: Tokenizer | None) -> Path:
    """Write a model and its optional tokenizer to a folder, which appears complete or not at all.

    It replaces a saved model. Raise UserError for other files, SaveError if writing fails.
    """
    path = local(folder, "[Model.save] folder").absolute()
    _require_place(path)
    if model.comm is not None and model.comm.world > 1:
        raise UserError(
            "[Model.save] expected a model of one process, got one that several ranks train: save the run with "
            "trainer.save(), then mc.load(FOLDER) opens it"
        )
    weights = {name: weight_view(model.store, name) for name in model.store.names()}
    later = {name: Later.of(array) for name, array in weights.items()}
    from mudd_core.data.tokenizers.files import tokenizer_files

    files = {} if tokenizer is None else tokenizer_files(tokenizer, model.config.max_seq_len)
    write_weights(model, path, files, later, final_hash(whole_parts(weights)))
    return path


def write_weights(
    model: BareModel,
    path: Path,
    files: Mapping[str, bytes],
    weights: Mapping[str, Later],
    digest: str,
    last: Last | None = None,
) -> None:
    """Write the folder of a model with these weights, computed one at a time, and with their final hash.

    files: of the tokenizer, by name. last: as in write_folder.
    """
    settings: JsonObject = {
        "format": FORMAT,
        "model": dataclasses.asdict(model.config),
        "precision": model.precision,
        "normalize": model.normalize,
        "hash": digest,
    }
    if model.lora is not None:
        settings["lora"] = dataclasses.asdict(model.lora)
    place = "[Model.save]"
    write_folder(path, settings, weights, shard_bytes=_SHARD_BYTES, files=files, place=place, last=last)


def read_model(folder: str | Path) -> SavedModel:
    """Read a folder of write_model; raise UserError for another folder, FormatError if it is damaged."""
    path = local(folder, "[Model.load] folder")
    if not path.exists():
        raise UserError(
            f"[Model.load] folder: expected a folder of model.save(), got '{path}', which does not exist"
        )
    if not is_model_folder(path):
        raise UserError(
            f"[Model.load] folder: expected a folder of model.save(), got {path}; mc.load('{path}') opens work "
            "directories, checkpoints and folders of Hugging Face"
        )
    file = path / _SETTINGS
    settings = json.loads(read_bytes(file))
    weights = {name: np.asarray(tensor) for name, tensor in stored_in(weight_files(path)).items()}
    if final_hash(whole_parts(weights)) != member(settings, "hash", str, file):
        raise FormatError(str(path), 0, "the weights are not those that were saved (their hash differs)")
    return SavedModel(
        from_dict({"model": member(settings, "model", dict, file)}).model,
        member(settings, "precision", str, file),
        member(settings, "normalize", str, file),
        {name: NARROW[kind] for name, kind in _types(weights).items() if kind in NARROW},
        weights,
        from_dict({"model": settings["model"], "lora": settings["lora"]}).lora
        if "lora" in settings
        else None,
    )


def _types(weights: Mapping[str, Array]) -> dict[str, str]:
    """Return the safetensors dtype by name."""
    return {name: dtypes.name_of(array.dtype) or "" for name, array in weights.items()}


def require_shapes(store: _core.ParamStore, saved: SavedModel, folder: str | Path) -> None:
    """Raise FormatError if the saved weights have other names or shapes than the parameters of a store."""
    shapes = {name: tuple(store.describe(name)["shape"]) for name in store.names()}
    found = {name: array.shape for name, array in saved.weights.items()}
    wrong = sorted(name for name in {*found, *shapes} if found.get(name) != shapes.get(name))
    if wrong:
        raise FormatError(
            str(folder),
            0,
            f"weight '{wrong[0]}': expected shape {shapes.get(wrong[0])}, got {found.get(wrong[0])}",
        )


def take_saved(model: BareModel, saved: SavedModel) -> None:
    """Copy the saved weights and the loss normalization into a new model."""
    model.normalize = saved.normalize
    for name, array in saved.weights.items():
        set_weight(model.store, name, array)


def _require_place(path: Path) -> None:
    """Raise UserError if a folder contains files that a saved model must not replace."""
    if not path.exists() or (path.is_dir() and (is_model_folder(path) or not any(path.iterdir()))):
        return
    raise UserError(
        f"[Model.save] folder: expected a new folder or one of model.save(), got {path}, which "
        "contains other files; name another folder"
    )
