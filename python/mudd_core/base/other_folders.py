"""Folders of Hugging Face and PEFT, and GGUF files, that are given instead of a run, and the remedy for each."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import free_folder
from mudd_core.base.show.printable import visible_line
from mudd_core.base.surroundings import is_command_line, typed_program

_SETTINGS, _ADAPTER = "config.json", "adapter_config.json"
_OF_MODEL = {"model_type", "architectures"}  # keys of config.json in transformers
_GGUF = ".gguf"
_REPOSITORY = "models--"  # the start of the name of a folder in the hub's cache: models--OWNER--NAME


@dataclass(frozen=True)
class OtherFolder:
    """A folder of another library. path: as typed. files: the folder of config.json, path or below it.

    base: name of the model of adapters; None for a whole model.
    """

    path: Path
    files: Path
    base: str | None = None

    @property
    def text(self) -> str:
        """The path and its kind, for `expected a run, got ...`."""
        if self.base is None:
            return f"'{self.path}', a model of Hugging Face"
        return f"'{self.path}', adapters of PEFT for the model '{visible_line(self.base)}'"

    @property
    def way_out(self) -> str:
        """The command to type; in Python the call."""
        if self.base is None:
            if not is_command_line():
                return f"call mc.load('{self.files}')"
            return f"type: {_line('import', str(self.files), f'--workdir={self.run}')}"
        base = self.base if Path(self.base).is_dir() else "FOLDER"
        if not is_command_line():
            return (
                f"to train them further, call mc.tune('{base}', 'FILE', '{self.run}', adapter='{self.files}'); "
                f"for the whole model, call then mc.export('{self.run}', '{self.run}-merged')"
            )
        tune = ("tune", f"--base={base}", "--data=FILE", f"--adapter={self.files}", f"--workdir={self.run}")
        merged = ("export", f"--workdir={self.run}", "--merged", f"--to={self.run}-merged")
        return (
            f"to train them further, type: {_line(*tune)}; for the whole model, type then: {_line(*merged)}"
        )

    @property
    def run(self) -> Path:
        """A free folder in runs/ with the name of the model."""
        snapshot = self.files.absolute()
        of_hub = snapshot.parent.parent.name
        name = of_hub.split("--")[-1] if of_hub.startswith(_REPOSITORY) else snapshot.name.lstrip(".")
        return free_folder(Path("runs") / (name or "model"))


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder itself has the config.json of a model of transformers."""
    return bool(object_in(folder / _SETTINGS).keys() & _OF_MODEL)


def other_folder(path: Path) -> OtherFolder | None:
    """Return the folder of Hugging Face or PEFT at a path, also inside the hub's cache; None for any other path."""
    for files in (path, *_snapshots(path)):
        if is_hugging_face(files):
            return OtherFolder(path, files)
        adapter = object_in(files / _ADAPTER)
        if adapter:
            base = adapter.get("base_model_name_or_path")
            return OtherFolder(path, files, base if isinstance(base, str) else "")
    return None


def require_no_gguf(path: Path, place: str, wanted: str = "a run") -> None:
    """Raise UserError with the remedy if a path is a GGUF file. place: of the message."""
    if path.suffix.lower() == _GGUF and path.is_file():
        raise UserError(
            f"{place} expected {wanted}, got the GGUF file '{path}', which only llama.cpp and Ollama read; name the "
            "run that it was exported from, or the model's folder with config.json and safetensors (`hf download "
            "OWNER/NAME --local-dir FOLDER` fetches one)"
        )


def require_no_other(path: Path, place: str, wanted: str = "a run") -> None:
    """Raise UserError with the command or call to use if a path is such a folder or file. place: of the message."""
    require_no_gguf(path, place, wanted)
    found = other_folder(path)
    if found is not None:
        raise UserError(f"{place} expected {wanted}, got {found.text}; {found.way_out}")


def _snapshots(path: Path) -> list[Path]:
    """Return the folders of files of a model in the hub's cache; the folder of refs/main comes first."""
    repository = path.parent if path.name == "snapshots" else path
    main = ""
    with contextlib.suppress(OSError, ValueError):  # a download of one named revision writes no refs/main
        main = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    with contextlib.suppress(OSError, ValueError):  # an impossible name
        return sorted((repository / "snapshots").glob("*/"), key=lambda folder: folder.name != main)
    return []


def _line(*words: str) -> str:
    return shlex.join([*typed_program(), *words])
