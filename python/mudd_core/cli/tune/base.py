"""The model that a tuning starts from: a folder of Hugging Face, imported once into the run's folder, or a run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import local
from mudd_core.base.types import JsonObject
from mudd_core.config import Config, ModelConfig
from mudd_core.data.documents.source import file_digest
from mudd_core.data.tokenizer_files import VOCABULARIES
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.interop import import_command
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder

_FILES = ("*.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "*.jinja")


@dataclass(frozen=True)
class Base:
    """A model to start from. name: as typed. run: whose newest checkpoint it is. tokenizer: as data.tokenizer."""

    name: str
    run: RunFolder
    model: ModelConfig
    tokenizer: str


def base_of(name: str, run: RunFolder) -> Base:
    """The base that --base names; a folder of Hugging Face is imported into the folder of the run.

    UserError where there is none, and for another base than the one that the run was started with.
    """
    source = RunFolder(local(name, "[tune] --base"))
    if source.holds_run and source.has_identity:
        if not Checkpoints(source).steps():
            raise UserError(f"[tune] --base: {source} has no checkpoint yet")
        return _of_run(name, source)
    imported = RunFolder(run.base_folder)
    note = imported.source_file
    facts = _facts(source.path) if source.path.is_dir() else {}
    if imported.holds_run and Checkpoints(imported).steps() and note.is_file():
        known = object_in(note)
        is_same = known.get("files") == facts if facts else known.get("path") == str(source.path.absolute())
        if not is_same:
            raise UserError(
                f"[tune] --base: {run} was started from {known.get('path')}, and {name} has other files; give the same "
                "base, or another --workdir"
            )
        return _of_run(name, imported)
    _import(name, imported)
    text = json.dumps({"path": str(source.path.absolute()), "files": facts}, indent=1)
    _core.replace_file(str(note), f"{text}\n".encode())
    return _of_run(name, imported)


def _import(name: str, to: RunFolder) -> None:
    print(f"importing {name} into {to}", flush=True)
    with contextlib.redirect_stdout(io.StringIO()):  # what it says of the next commands is not for this one
        import_command.main([name, f"--workdir={to}"], is_base=True)


def _facts(folder: Path) -> JsonObject:
    """SHA-256 over name, size and edges of each file that decides the model and its text."""
    files = sorted({file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()})
    return {file.name: hashlib.sha256(json.dumps(file_digest(file)).encode()).hexdigest() for file in files}


def _of_run(name: str, run: RunFolder) -> Base:
    config = read_saved_config(run)
    tokenizer = config.data.tokenizer
    for folder in (
        run.imported_folder,
        run.path,
    ):  # the first has the config and the template of the tokenizer
        if any((folder / file).is_file() for file in VOCABULARIES):
            tokenizer = str(folder)
            break
    return Base(name, run, resolved_model(config, expected_vocabulary(config)), tokenizer)


def require_same_base(config: Config, base: Base, run: RunFolder) -> None:
    """UserError where a run was started from another base."""
    started = config.start.load_parameters_path
    if Path(started).resolve() != base.run.path.resolve():
        raise UserError(
            f"[tune] --base: {run} was started from {started}, got {base.name}; give that, or another --workdir"
        )
