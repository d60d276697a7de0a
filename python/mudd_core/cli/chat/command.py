"""The command `chat`: open the run or folder, and talk at a terminal or through a pipe."""

from __future__ import annotations

import sys
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import other_folder
from mudd_core.cli.chat.history import History, Notes
from mudd_core.cli.chat.piped import answer_lines
from mudd_core.cli.chat.terminal import talk
from mudd_core.cli.corrected import other_names
from mudd_core.cli.names import KNOWN_WORDS
from mudd_core.cli.reading import saved_run
from mudd_core.cli.request import Request
from mudd_core.config import Config, apply_overrides, check_config, split_words, typed_names
from mudd_core.config.overrides import field_path
from mudd_core.config.saved import differences
from mudd_core.config.schema import fields_of_all
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.engine.model_folder import is_model_folder
from mudd_core.interop.load_run import load_run
from mudd_core.run.build.run_tokenizer import asked_tokenizer
from mudd_core.run.opened.run import Run
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.best_step import step_asked
from mudd_core.run.store.own_code import TRUST

_WINDOW = "sample.window"


def chat(request: Request) -> int:
    """Talk to the model of a request until the end of the input; return the exit code."""
    run, config = _opened(request)
    _core.set_num_threads(Ranks().threads(config.train.threads))
    notes, tokenizer = Notes(), _tokenizer(request, run)
    answers = run.chat_with(request.options.get("--template", ""), tokenizer, notes.add)
    variables = answers.variables(False if "--no-think" in request.options else None)
    history = History(answers, config.sample, request.options.get("--system", ""), variables, notes)
    notes.say()
    return talk(history) if sys.stdin.isatty() else answer_lines(history)


def _tokenizer(request: Request, run: Run) -> Tokenizer:
    """Return the tokenizer of --tokenizer, else of the run or folder; raise UserError if there is none."""
    if (named := request.options.get("--tokenizer")) is not None:
        return asked_tokenizer(named, run.config, run.model.config.vocab_size)
    if (own := run.tokenizer_or_none()) is not None:
        return own
    raise UserError(
        f"[chat] --tokenizer: expected the tokenizer of the ids that {run.path} was trained on, got none; type "
        "--tokenizer=PATH, with a folder, a tokenizer.json, a *.model of sentencepiece, or bytes"
    )


def _opened(request: Request) -> tuple[Run, Config]:
    """Return the run or folder, and its config with the overrides of the command line."""
    folder = _folder(request)
    if folder is None:
        config, run_folder = saved_run(request)
        _require_stop(request)
        step = step_asked(request.options.get("--step"), run_folder)
        return load_run(
            run_folder.path,
            step,
            average="--average" in request.options,
            trust_code=TRUST in request.options,
        ), config
    for option in ("--step", "--average"):
        if option in request.options:
            raise UserError(
                f"[arguments] {option}: expected a run, got the folder {folder} of a model; leave it out"
            )
    run = load_run(folder)
    try:
        return run, _with_overrides(run.config, request, folder)
    except UserError as error:
        if (better := other_names(request)) is not None:
            raise better from error
        raise


def _with_overrides(config: Config, request: Request, folder: Path) -> Config:
    """Return the config of a folder with the overrides of the command line; raise UserError for fields of training."""
    overrides = split_words(request.words, config, KNOWN_WORDS, "sample")
    asked = apply_overrides(config, overrides)
    _require_stop(request)
    check_config(asked, typed_names(overrides))
    for change in differences(config, asked):
        if not change.free_on_resume:
            raise UserError(
                f"[arguments] {change.path}: expected a field of sample, or train.threads; leave it out, because "
                f"{folder} is a trained model"
            )
    return asked


def _folder(request: Request) -> Path | None:
    """Return the folder of Hugging Face or of model.save() that a request names; None for a run."""
    path = Path(request.options.get("--workdir", ""))
    if "--workdir" not in request.options:
        return None
    if is_model_folder(path):
        return path
    found = other_folder(path)
    return None if found is None else found.files


def _require_stop(request: Request) -> None:
    """Raise UserError for sample.window on the command line: a chat leaves out its oldest turns."""
    infos = fields_of_all()
    for item in split_words(request.words, Config(), KNOWN_WORDS, "sample"):
        if field_path(item.path, infos, "sample") == _WINDOW:
            raise UserError(
                f"[chat] {_WINDOW}: expected no value, got '{item.text}'; leave it out, because a conversation that is "
                "too long loses its oldest turns"
            )
