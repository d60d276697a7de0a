"""The error for data.path=RUN: a folder with a model is no text. It names the command or call to use."""

from __future__ import annotations

import shlex
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import require_no_other
from mudd_core.base.storage import is_url, mapped
from mudd_core.base.surroundings import is_command_line, typed_program
from mudd_core.config import Config
from mudd_core.config.fields import Scalar
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.run.store.json_files import read_config_file
from mudd_core.run.store.other_config import new_workdir
from mudd_core.run.store.run_folder import RunFolder

_PATH, _START = "data.path", "start.load_parameters_path"


def trained_further(run: str, text: str = "", start: str = "", steps: int = 0) -> str:
    """Return the command or call that trains the model of a run further, in a new folder.

    text: value of data.path; empty: the text of the run. start: a checkpoint of the run instead of its newest one.
    steps: the number of updates; 0: as many as the run.
    """
    fields: dict[str, Scalar] = {**({_PATH: text} if text else {}), _START: start or run}
    if steps:
        fields["train.steps"] = steps
    if is_command_line():
        words = [f"{name}={value}" for name, value in fields.items()]
        config, workdir = f"--config={run}/config.json", f"--workdir={new_workdir(run)}"
        return shlex.join([*typed_program(), config, *words, workdir])
    return f"mc.Trainer(mc.load_config('{run}/config.json', {fields!r}), workdir={new_workdir(run)!r})"


def require_text(config: Config, folder: RunFolder | None) -> None:
    """Raise UserError if data.path or data.eval_path is a run, or a folder of Hugging Face or PEFT.

    folder: of a run, which may have trained so before.
    """
    for source in source_names(config):
        require_text(source_config(config, source), folder)
    known = set[str]()
    if folder is not None and folder.holds_run:
        saved = read_config_file(folder)
        known = {saved.data.path, saved.data.eval_path}
        for name in source_names(saved):
            of_source = source_config(saved, name).data
            known |= {of_source.path, of_source.eval_path}
    for name in ("path", "eval_path"):
        typed: str = getattr(config.data, name)
        path = mapped(typed, config.storage.map)
        if not path or is_url(path) or typed in known:
            continue
        require_no_other(Path(path), f"[data.{name}]", "text files")
        run, _ = RunFolder.holding(Path(path))
        if not run.is_own_run:
            continue
        resume = (
            shlex.join([*typed_program(), f"--workdir={run}"])
            if is_command_line()
            else f"mc.Trainer('{run}')"
        )
        raise UserError(
            f"[data.{name}] expected text files, got '{typed}', which is a run. To train its "
            f"model further in a new run:\n  {trained_further(str(run))}\nTo resume it:\n  {resume}"
        )
