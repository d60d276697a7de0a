"""The folders of this program that can be opened: a work directory, a checkpoint of one, a saved model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import Config, TrainConfig
from mudd_core.data.tokenizers.files import VOCABULARIES
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.engine.model import Model
from mudd_core.engine.model_folder import is_model_folder
from mudd_core.run.build.run_tokenizer import end_ids, own_tokenizer
from mudd_core.run.build.saved_model import model_of_run
from mudd_core.run.opened.run import Source
from mudd_core.run.store.best_step import step_asked
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.own_code import MODEL, run_copies
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer


def own_source(path: Path, step: int | str | None, *, trust_code: bool = False) -> Source | None:
    """The source of a folder that this program has written; None for another one.

    step: of the checkpoint to read, or "best"; None for the newest, or that of a checkpoint's own folder. trust_code:
    code in the folder of a run may run. None is run before the model, or a reader of the text, is used.
    """
    if is_model_folder(path):
        return _of_model(path, step)
    folder, of_folder = RunFolder.holding(path)
    folder = replace(folder, trusted=trust_code)
    if not folder.holds_run or not folder.has_identity:
        return None
    step = step_asked(step, folder, "[load_run] step")
    if step is not None and of_folder is not None and step != of_folder:
        raise UserError(
            f"[load_run] step: expected {of_folder}, the step of {path}, got {step}; leave it out"
        )
    run_copies(folder, needs=())  # it offers the reader of the data, which the tokenizer may need
    config = read_saved_config(folder)
    return Source(
        path,
        config,
        partial(_model, folder, of_folder if step is None else step),
        partial(own_tokenizer, config, folder),
        folder,
    )


def _model(folder: RunFolder, step: int | None) -> tuple[Model, int]:
    run_copies(folder, needs=MODEL)
    return model_of_run(read_saved_config(folder), folder, step)


def config_of(folder: Path, model: Model) -> Config:
    """The config of a model without a run: its own, with sequences of its length."""
    name = folder.absolute().name.lstrip(".") or "model"
    return Config(name=name, model=model.config, train=TrainConfig(seq_len=model.config.max_seq_len))


def folder_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer whose files are in a folder; None where there are none."""
    if any((folder / name).is_file() for name in VOCABULARIES):
        return find_tokenizer(str(folder.absolute()), 0).make().for_prompts(end_ids(folder))
    return None


def _of_model(path: Path, step: int | str | None) -> Source:
    if step is not None:
        raise UserError(f"[load_run] step: expected none for a saved model, got {step} for {path}")
    model = Model.load(path)
    return Source(path, config_of(path, model), lambda: (model, None), partial(folder_tokenizer, path))
