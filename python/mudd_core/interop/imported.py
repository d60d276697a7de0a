"""The files that come with imported Hugging Face weights: stored in the run's folder and exported byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import SaveError, UserError, write_reason
from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint.weights import is_consolidated, weight_files
from mudd_core.config import Config, ModelConfig
from mudd_core.data.chat.templates import TEMPLATES
from mudd_core.data.documents.source import file_digest
from mudd_core.interop.hf_images import text_settings
from mudd_core.interop.hf_settings import model_config
from mudd_core.run.store.run_folder import RunFolder

SETTINGS = "config.json"
_TYPES = "types.json"  # types of the tensors, as safetensors names them
_SOURCE = (
    "*.safetensors",
    SETTINGS,
    "tokenizer.json",
    "tokenizer_config.json",
    "*.jinja",
    f"{TEMPLATES}/*.jinja",
)  # the files that determine the model and its text
_OF_SETTINGS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
CARRIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)


def imported_files(source: Path, settings: Path, *, tokenizer: bool) -> dict[str, bytes]:
    """Return the files to store, by name: config.json, types.json, and the source's tokenizer files if the run uses
    them.

    Raise UserError if a file cannot be read.
    """
    files = {SETTINGS: settings / SETTINGS if settings.is_dir() else settings}
    files |= {name: source / name for name in _tokenizer_files(source) if tokenizer}
    found = {}
    for name, file in files.items():
        try:
            found[name] = read_bytes(file) if name != SETTINGS else _settings_of_text(file)
        except OSError as error:
            raise UserError(f"[import] {file} cannot be read: {error.strerror}") from error
    types = {name: kind for file in weight_files(source) for name, kind in _types_in(file).items()}
    return {**found, _TYPES: (json.dumps(types, indent=1) + "\n").encode()}


def _settings_of_text(file: Path) -> bytes:
    """Return a config.json, or that part of it that describes the language model."""
    data = read_bytes(file)
    settings = object_in(file)
    text = text_settings(settings)
    return data if text == settings else (json.dumps(text, indent=2) + "\n").encode()


def _types_in(file: Path) -> dict[str, str]:
    """Return the type of each floating-point tensor in a safetensors file, by name."""
    tensors = _core.SafetensorsFile(str(file)).tensors()
    return {name: kind for name, kind, *_ in tensors if kind in _OF_SETTINGS.values()}


def keep_imported(files: Mapping[str, bytes], run: RunFolder) -> None:
    """Write the files into the run's folder. Raise SaveError if a write fails."""
    for name, data in files.items():
        to = run.imported_folder / name
        try:
            _core.make_folders(str(to.parent))
            _core.replace_file(str(to), data)
        except OSError as error:
            raise SaveError(f"[import] {to} could not be written: {write_reason(error)}") from error


def carrier(run: RunFolder, config: Config) -> RunFolder:
    """Return the run whose imported files are exported with a run.

    This is the run itself, or the base whose tokenizer a tuned run uses.
    """
    place = Path(config.data.tokenizer)
    is_of_base = place.name == IMPORTED and place.is_dir() and not run.imported_folder.is_dir()
    return RunFolder(place.parent) if is_of_base else run


def base_source(run: RunFolder) -> str:
    """Return the Hugging Face folder that a run was tuned from; empty if there is none."""
    source = object_in(RunFolder(run.base_folder).source_file).get("path")
    return source if isinstance(source, str) else ""


def source_facts(folder: Path) -> JsonObject:
    """Return the SHA-256 of each file of a folder that determines the model, its tokenizer or its template, by name.

    It covers the file's name, its size, and its first and last bytes.
    """
    found = {file for pattern in _SOURCE for file in folder.glob(pattern) if file.is_file()}
    files = sorted(file for file in found if not is_consolidated(file.name))
    return {file.name: hashlib.sha256(json.dumps(file_digest(file)).encode()).hexdigest() for file in files}


def changed_since(imported: RunFolder, folder: Path) -> list[str]:
    """Return the names of the files in a folder that have changed since a tuning's base was imported from it.

    A folder that no longer exists has no changes; its path is returned only if the import was from another folder. A
    config.json that describes the same model is unchanged.
    """
    known, now = object_in(imported.source_file), source_facts(folder)
    if not now:
        return [] if known.get("path") == str(folder.absolute()) else [str(folder)]
    files = known.get("files")
    kept = files if isinstance(files, dict) else {}
    before = {name: value for name, value in kept.items() if not is_consolidated(name)}
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if SETTINGS in changed and SETTINGS in now and _is_same_model(folder / SETTINGS, imported):
        changed.remove(SETTINGS)
    return changed


def _is_same_model(settings: Path, imported: RunFolder) -> bool:
    """Return True if a config.json describes the model that was imported."""
    try:
        theirs = model_config(object_in(settings))
    except ValueError:
        return False
    return theirs.settled() == model_config(object_in(imported.imported_folder / SETTINGS)).settled()


def imported_settings(run: RunFolder, model: ModelConfig) -> JsonObject | None:
    """Return the config.json that a run was imported with; None if the model has changed since."""
    settings = object_in(run.imported_folder / SETTINGS)
    try:
        same = bool(settings) and model_config(settings).settled() == model.settled()
    except ValueError:  # written by a version that supports more settings
        return None
    return settings if same else None


def of_type(settings: JsonObject, dtype: str) -> JsonObject:
    """Return the config.json of the same model with another type of weights."""
    return {**{name: value for name, value in settings.items() if name != "torch_dtype"}, "dtype": dtype}


def imported_types(run: RunFolder) -> dict[str, str]:
    """Return the type of each tensor that a run was imported from, by name, both as in safetensors; empty if unknown.

    For a run that an older version imported, the result has the type in its config.json under the empty name.
    """
    known = object_in(run.imported_folder / _TYPES)
    types = {
        name: kind for name, kind in known.items() if isinstance(kind, str) and kind in _OF_SETTINGS.values()
    }
    settings = object_in(run.imported_folder / SETTINGS)
    dtype = settings.get("dtype", settings.get("torch_dtype"))
    return types or ({"": _OF_SETTINGS[dtype]} if isinstance(dtype, str) and dtype in _OF_SETTINGS else {})


def imported_tokenizer(run: RunFolder) -> dict[str, bytes]:
    """Return the tokenizer files that a run was imported with, by name; empty if the run has another tokenizer."""
    folder = run.imported_folder
    return {name: read_bytes(folder / name) for name in _tokenizer_files(folder)}


def _tokenizer_files(folder: Path) -> list[str]:
    """Return the relative paths of the tokenizer files in a folder, with the chat templates in its subfolder."""
    more = [f"{TEMPLATES}/{file.name}" for file in sorted(folder.glob(f"{TEMPLATES}/*.jinja"))]
    return [name for name in (*CARRIED, *more) if (folder / name).is_file()]
