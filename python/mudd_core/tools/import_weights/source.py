"""The folder of weights that an import reads: checks before anything is opened, with a remedy in each message."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import other_folder, require_no_gguf
from mudd_core.base.surroundings import typed_program
from mudd_core.interop.imported import SETTINGS
from mudd_core.run.store.run_folder import RunFolder

# Names of the Hugging Face Hub: org/model, gpt2.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w-]*(\.[\w-]+)*/[A-Za-z0-9][\w.-]*|[A-Za-z0-9][\w-]*")


PLACE = "[import] PATH:"


def require_source(typed: str, source: Path, *, has_settings: bool = False, place: str = PLACE) -> None:
    """Raise UserError if there is nothing to import; for a model's name, the error has the download command.

    place: of the messages.
    """
    require_no_gguf(source, place, "a folder with config.json, safetensors and tokenizer.json")
    if source.is_dir() and not has_settings:
        _require_model(typed, source, place)
        _require_settings(source, place)
    if source.is_dir() or (source.exists() and has_settings):
        return
    if source.exists():
        raise UserError(
            f"{place} expected a folder with config.json, safetensors and tokenizer.json, got "
            f"the file {source}; pass its folder, or add --settings=FILE with the settings of its "
            "model"
        )
    wanted = f"{place} expected a folder with config.json, safetensors and tokenizer.json, got '{source}'"
    is_local = ("/" in typed and source.parent.is_dir()) or source.suffix == ".safetensors"
    if is_local or not _HUB_NAME.fullmatch(typed):
        raise UserError(f"{wanted}, which does not exist")
    raise UserError(
        f"{wanted}; nothing is downloaded here: fetch it on a machine with network access, `hf "
        f"download {source} --local-dir FOLDER`, and pass that FOLDER"
    )


def _require_model(typed: str, source: Path, place: str) -> None:
    """Raise UserError for adapters of PEFT, and for a run, which needs no import."""
    other = other_folder(source)
    if other is not None and other.base is not None:
        raise UserError(f"{place} expected a model, got {other.text}; {other.way_out}")
    run = RunFolder(source)
    if run.is_own_run:
        line = shlex.join([*typed_program(), "sample", typed])
        raise UserError(f"{place} expected a model of another program, got the run {typed}; type: {line}")


def _require_settings(source: Path, place: str) -> None:
    """Raise UserError for a folder without config.json, with the folder that has it or the command that fetches it."""
    # the folder of Mistral's program is refused later, with its own message
    if any((source / name).exists() for name in (SETTINGS, "params.json")):
        return
    other = other_folder(source)  # of the hub's cache
    below = (
        [other.files] if other is not None else [file.parent for file in sorted(source.glob(f"*/{SETTINGS}"))]
    )
    if below:
        remedy = f"pass {below[0]}"
    elif any(source.glob("*.safetensors")):
        remedy = (
            f"fetch it too, `hf download OWNER/NAME {SETTINGS} --local-dir {shlex.quote(str(source))}`, or add "
            "--settings=FILE with the settings of its model"
        )
    else:
        remedy = "pass the folder of a model (`hf download OWNER/NAME --local-dir FOLDER` fetches one)"
    raise UserError(
        f"{place} expected a folder with config.json, safetensors and tokenizer.json, got {source}, which "
        f"has no {SETTINGS}; {remedy}"
    )
