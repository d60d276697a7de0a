"""The base model of a fine-tuning run, and its adapters. Both are copied once into the folder of the run.

The model is a Hugging Face folder or a run; the adapters are a PEFT folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED, local
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.cli.tune.fields import ADAPTER
from mudd_core.config import Config, LoraConfig, ModelConfig
from mudd_core.config.fields import replace_path
from mudd_core.data.tokenizers.files import has_vocabulary
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.interop.imported import changed_since, source_facts
from mudd_core.interop.peft_folder import read_adapter
from mudd_core.run.build.base import BASE_FACT, weights_sha256
from mudd_core.run.build.start_source import read_source
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.folder_lock import OWN_NAMES, is_held
from mudd_core.run.store.json_files import facts_of, read_saved_config
from mudd_core.run.store.run_folder import (
    CHECKPOINTS,
    CONFIG,
    EVENTS,
    METRICS,
    RUN,
    SOURCE,
    STAGED,
    RunFolder,
)
from mudd_core.run.store.tune_arguments import TuneArguments
from mudd_core.tools.import_weights import command as import_command
from mudd_core.tools.import_weights.source import require_source

# Entries of a folder that an import creates, whether it is finished or not.
_OF_IMPORT = {
    *OWN_NAMES,
    CONFIG,
    RUN,
    METRICS,
    EVENTS,
    SOURCE,
    CHECKPOINTS,
    STAGED,
    IMPORTED,
    "tokenizer.json",
}


@dataclass(frozen=True)
class Base:
    """A base model.

    name: as the user wrote it. run: the folder whose newest checkpoint it is. tokenizer: for data.tokenizer.
    """

    name: str
    run: RunFolder
    model: ModelConfig
    tokenizer: str


def base_of(name: str, run: RunFolder) -> Base:
    """Return the base of --base; a Hugging Face folder is imported into the folder of the run.

    A changed folder is imported again if training has not started. A missing folder is accepted if it was imported
    before under this name. Raise UserError if the base does not exist, or if the run was started with another base.
    """
    source = RunFolder(local(name, "[tune] --base"))
    if source.is_own_run:
        if not Checkpoints(source).steps():
            raise UserError(f"[tune] --base: {source} has no checkpoint yet")
        return _of_run(name, source)
    imported = RunFolder(run.base_folder)
    note = imported.source_file
    if imported.holds_run and Checkpoints(imported).steps() and note.is_file():
        gone = run.holds_run and not source.path.exists() and _is_typed_as_before(name, run)
        if gone or not (changed := changed_since(imported, source.path)):
            return _of_run(name, imported)
        if run.holds_run or not source.path.is_dir():
            raise UserError(_refusal(imported, name, source.path, changed, run))
        print(f"{', '.join(changed)} changed since the import, and nothing is trained yet", flush=True)
    if run.holds_run:
        _require_imported(name, source.path, run)  # checked before an import writes files into the folder
    _clear(imported)
    _import(name, imported)
    if run.holds_run and not is_known(sha256 := base_sha256(imported), run):
        shutil.rmtree(imported.path)
        raise _other_base(run, "its base", name, sha256)
    text = json.dumps({"path": str(source.path.absolute()), "files": source_facts(source.path)}, indent=1)
    _core.replace_file(str(note), f"{text}\n".encode())
    return _of_run(name, imported)


def require_elsewhere(name: str, run: RunFolder) -> None:
    """Raise UserError if a base is in the folder into which bases are imported, unless the base is a run."""
    source, imported = RunFolder(local(name, "[tune] --base")), RunFolder(run.base_folder)
    if source.path.resolve() == imported.path.resolve() and not source.is_own_run:
        raise UserError(
            f"[tune] --workdir: {imported} is the folder for the imported base; type another --workdir"
        )


def _clear(imported: RunFolder) -> None:
    """Remove the files of an interrupted import or of an import of other files. Keep a folder that has other files.

    The run's folder must be locked. Raise UserError while another process has locked the base.
    """
    if not imported.path.is_dir() or not {entry.name for entry in imported.path.iterdir()} <= _OF_IMPORT:
        return
    if is_held(imported):
        raise UserError(f"[tune] --base: {imported} is in use by another process; wait for it")
    shutil.rmtree(imported.path)


def _refusal(imported: RunFolder, name: str, source: Path, changed: list[str], run: RunFolder) -> str:
    """Return the reason why a run cannot continue with a folder, and the alternatives."""
    began = object_in(imported.source_file).get("path")
    if not source.exists():
        return (
            f"[tune] --base: expected the folder with which {run} was started, got {name}, which does not exist; "
            f"--base={began} resumes with the run's own copy; or give the new place of that folder, whose files are "
            "compared by SHA-256"
        )
    if began == str(source.absolute()):
        return (
            f"[tune] --base: {', '.join(changed)} in {name} changed after the start of {run}; restore them to "
            "resume, or tune the changed folder in another --workdir"
        )
    return (
        f"[tune] --base: {run} was started from {began}, and {name} has other files ({', '.join(changed)}); give the "
        "same base, or another --workdir"
    )


def _import(name: str, to: RunFolder) -> None:
    require_source(name, local(name, "[tune] --base"), place="[tune] --base:")
    print(f"importing {name} into {to}", flush=True)
    with contextlib.redirect_stdout(
        io.StringIO()
    ):  # the import's hints about next commands do not apply here
        import_command.main([name, f"--workdir={to}"], is_base=True)


def _of_run(name: str, run: RunFolder) -> Base:
    config = read_saved_config(run)
    # The imported folder has the config and the tokenizer's template. The config may have an earlier path of the
    # folder.
    for folder in (run.imported_folder, run.path):
        if has_vocabulary(folder):
            config = replace_path(config, "data.tokenizer", str(folder))
            break
    model = resolved_model(config, expected_vocabulary(config))
    return Base(name, run, model, config.data.tokenizer)


def _is_typed_as_before(name: str, run: RunFolder) -> bool:
    arguments = TuneArguments.of(run)
    return arguments is not None and arguments.base == name


def _require_imported(name: str, source: Path, run: RunFolder) -> None:
    """Raise UserError if a run was started from another run instead of a folder imported into its own.

    Also raise it if the import is missing, and there is no folder to import again.
    """
    started = read_saved_config(run).start.load_parameters_path
    if Path(started).resolve() != run.base_folder.resolve() or not source.is_dir():
        raise _other_base(run, started, name)


def require_same_base(config: Config, base: Base, run: RunFolder) -> None:
    """Raise UserError if a run was started from another base. Equal weights in another place are accepted."""
    started = config.start.load_parameters_path
    if Path(started).resolve() == base.run.path.resolve():
        return
    sha256 = base_sha256(base.run)
    if not known_sha256(run) or not is_known(sha256, run):
        raise _other_base(run, started, base.name, sha256)


def base_sha256(run: RunFolder) -> str:
    """Return the SHA-256 of the weights of a base."""
    return weights_sha256(read_source(run.path).tensors)


def known_sha256(run: RunFolder) -> str:
    """Return the SHA-256 of the base of a run; empty if an older version did not record it."""
    arguments, fact = TuneArguments.of(run), facts_of(run).get(BASE_FACT)
    return fact if isinstance(fact, str) else arguments.base_sha256 if arguments is not None else ""


def is_known(sha256: str, run: RunFolder) -> bool:
    """Return True if a base has the weights of a run's base, as far as these are known."""
    return known_sha256(run) in ("", sha256)


def _other_base(run: RunFolder, started: str, name: str, sha256: str = "") -> UserError:
    """Return the error for another base. sha256: the hash of its weights; empty if it is unknown."""
    if not started:
        return UserError(
            f"[tune] --workdir: {run} was not started by tune, got --base={name}; give another --workdir"
        )
    known = known_sha256(run)
    began = f"{started} (SHA-256 {known[:12]})" if known else started
    got = f"{name} ({sha256[:12]})" if sha256 and known else name
    if Path(started).exists():
        return UserError(
            f"[tune] --base: {run} was started from {began}, got {got}; give that, or another --workdir"
        )
    return UserError(
        f"[tune] --base: {run} was started from {began}, which does not exist, got {got}; give "
        "--base=FOLDER with its new place, or another --workdir"
    )


@dataclass(frozen=True)
class Adapter:
    """Initial adapters.

    name: as the user wrote it. path: the file of their values under mudd_core's names. lora: settings.
    """

    name: str
    path: str
    lora: LoraConfig


def adapter_of(name: str, base: Base, run: RunFolder) -> Adapter:
    """Return the adapters of --adapter, copied into the folder of a new run.

    Raise UserError for a folder that PEFT did not write, unsupported settings, and adapters of another base;
    FormatError for damaged files.
    """
    folder = local(name, ADAPTER)
    found = read_adapter(folder, base.model, ADAPTER)
    to = run.adapter_folder
    source = {"path": str(folder.absolute())}
    weights = dict(sorted(found.weights.items()))
    write_folder(to, source, weights, shard_bytes=1 << 62, place="[tune]", names=(SOURCE, "adapter"))
    return Adapter(name, str(to), found.lora)


def require_same_adapter(name: str, run: RunFolder) -> None:
    """Raise UserError if a run was started with other adapters than the ones that --adapter names."""
    began = object_in(run.adapter_folder / SOURCE).get("path")
    if began != str(local(name, ADAPTER).absolute()):
        raise UserError(
            f"{ADAPTER}: {run} was started with {began or 'new adapters'}, got {name}; give the same, or another "
            "--workdir"
        )
