"""The files that came with imported weights of Hugging Face: kept in the run's folder, and exported byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import SaveError, UserError, write_reason
from mudd_core.base.members import object_in
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.config import ModelConfig
from mudd_core.interop.hf_settings import model_config
from mudd_core.run.store.run_folder import RunFolder

SETTINGS = "config.json"
_TOKENIZER = (
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
    """The files to keep, by name: config.json, and the tokenizer's of the source where they are the run's.

    UserError for one that cannot be read.
    """
    files = {SETTINGS: settings / SETTINGS if settings.is_dir() else settings}
    files |= {name: source / name for name in _TOKENIZER if tokenizer and (source / name).is_file()}
    found = {}
    for name, file in files.items():
        try:
            found[name] = read_bytes(file)
        except OSError as error:
            raise UserError(f"[import] {file} cannot be read: {error.strerror}") from error
    return found


def keep_imported(files: Mapping[str, bytes], run: RunFolder) -> None:
    """Write them into the run's folder; SaveError where that fails."""
    for name, data in files.items():
        to = run.imported_folder / name
        try:
            _core.make_folders(str(to.parent))
            _core.replace_file(str(to), data)
        except OSError as error:
            raise SaveError(f"[import] {to} could not be written: {write_reason(error)}") from error


def imported_settings(run: RunFolder, model: ModelConfig) -> JsonObject | None:
    """The config.json that a run was imported with, for weights in fp32; None where the model has changed since."""
    settings = object_in(run.imported_folder / SETTINGS)
    try:
        same = bool(settings) and model_config(settings).settled() == model.settled()
    except ValueError:  # of a version that read more than this one
        return None
    if not same:
        return None
    settings.pop("torch_dtype", None)
    return {**settings, "dtype": "float32"}


def imported_tokenizer(run: RunFolder) -> dict[str, bytes]:
    """The tokenizer's files that a run was imported with, by name; none where it has another tokenizer."""
    folder = run.imported_folder
    return {name: read_bytes(folder / name) for name in _TOKENIZER if (folder / name).is_file()}
