"""The folders of mudd_core that open as runs, and the source of a run: its config, model and tokenizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import Config, TrainConfig
from mudd_core.data.tokenizers.files import has_vocabulary
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.engine.model import Model
from mudd_core.engine.model_folder import is_model_folder
from mudd_core.run.build.run_tokenizer import end_ids, own_tokenizer
from mudd_core.run.build.saved_model import model_of_run
from mudd_core.run.store.best_step import step_asked
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.own_code import MODEL, run_copies
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Source:
    """The source of a Run.

    model: returns (model, step); the step is None for weights only. folder: the folder of a run.
    step: of the checkpoint that the user named; None for the newest.
    """

    path: Path
    config: Config
    model: Callable[[], tuple[Model, int | None]]
    tokenizer: Callable[[], Tokenizer | None]
    folder: RunFolder | None = None
    step: int | None = None


def own_source(
    path: Path, step: int | str | None, *, average: bool = False, trust_code: bool = False
) -> Source | None:
    """Return the source of a folder that mudd_core has written; None for another folder.

    step: the step of the checkpoint, or "best"; None: the newest one, or the step of a checkpoint's own folder.
    average: use the averaged weights of train.average. trust_code: code in the run's folder may run. No code runs
    before the model, or a reader of the text, is used.
    """
    if is_model_folder(path):
        if average:
            raise UserError(f"[load_run] average: expected a run, got the saved model {path}; leave it out")
        return _of_model(path, step)
    folder, of_folder = RunFolder.holding(path)
    folder = replace(folder, trusted=trust_code)
    if not folder.holds_run or not folder.has_identity:
        return None
    step = step_asked(step, folder, "[load_run] step")
    if step is not None:
        _require_saved(step, folder)
    if step is not None and of_folder is not None and step != of_folder:
        raise UserError(
            f"[load_run] step: expected {of_folder}, the step of {path}, got {step}; leave it out"
        )
    run_copies(folder, needs=())  # makes the data's reader available, which the tokenizer may need
    config, step = read_saved_config(folder), of_folder if step is None else step
    return Source(
        path,
        config,
        partial(_model, folder, step, average=average),
        partial(own_tokenizer, config, folder),
        folder,
        step,
    )


def _require_saved(step: int, folder: RunFolder) -> None:
    """Raise UserError if a run has no checkpoint of this step."""
    saved = Checkpoints(folder).steps()
    if step not in saved:
        has = f"steps there: {', '.join(map(str, saved))}" if saved else "it has none yet"
        raise UserError(f"[load_run] step: {folder} has no checkpoint of step {step}; {has}")


def _model(folder: RunFolder, step: int | None, *, average: bool) -> tuple[Model, int]:
    run_copies(folder, needs=MODEL)
    return model_of_run(read_saved_config(folder), folder, step, average=average)


def config_of(folder: Path, model: Model) -> Config:
    """Return a config for a model without a run. Its sequences are as long as the model allows."""
    name = folder.absolute().name.lstrip(".") or "model"
    return Config(name=name, model=model.config, train=TrainConfig(seq_len=model.config.max_seq_len))


def folder_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer in a folder; None if there is none."""
    if has_vocabulary(folder):
        return find_tokenizer(str(folder.absolute()), 0).make().for_prompts(end_ids(folder))
    return None


def _of_model(path: Path, step: int | str | None) -> Source:
    if step is not None:
        raise UserError(f"[load_run] step: expected none for a saved model, got {step} for {path}")
    model = Model.load(path)
    return Source(path, config_of(path, model), lambda: (model, None), partial(folder_tokenizer, path))
