"""The arguments of commands that read a run: the run, its options, and the stop of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection

from mudd_core.base.errors import UserError
from mudd_core.cli.corrected import other_names
from mudd_core.cli.names import KNOWN_WORDS, PROMPTS
from mudd_core.cli.request import Request
from mudd_core.config import Config
from mudd_core.config.values import whole
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.own_code import MODEL
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import named_run


def saved_run(request: Request) -> tuple[Config, RunFolder]:
    """Return the config and folder of the requested run; raise UserError, with the whole command if possible."""
    section = {"sample": "sample", "chat": "sample", "validate": "eval"}.get(request.command, "")
    try:
        return named_run(request.options, request.words, KNOWN_WORDS, section, _needs(request))
    except UserError as error:
        if (better := other_names(request)) is not None:
            raise better from error
        raise


def _needs(request: Request) -> Collection[str]:
    """Return the fields whose code the command runs. For the reader of data, this is decided when the data are read."""
    if request.command in ("data", "report") and "--tokenizer" not in request.options:
        return ()
    return MODEL


def split_of(request: Request) -> str:
    """Return the split that `validate` evaluates: valid or test."""
    split = request.options.get("--split", "valid")
    if split not in ("valid", "test"):
        raise UserError(f"[arguments] --split: expected valid or test, got '{split}'")
    return split


def count_of(request: Request) -> int:
    """Return the number of samples per prompt.

    Raise UserError for an invalid number, or if two options set prompts.
    """
    typed = [name for name in PROMPTS if name in request.options]
    if len(typed) > 1:
        raise UserError(f"[arguments] {typed[1]}: expected it without {typed[0]}, got both; leave one out")
    return whole("[arguments] --num-samples", request.options.get("--num-samples", "1"), 1)


def require_ranks(request: Request) -> Callable[[int], None]:
    """Raise UserError for bad options of `validate` and `sample`; return a check that ranks can read the run."""
    from mudd_core.run.store.best_step import require_readers

    split_of(request)
    count_of(request)
    step = request.options.get("--step")
    return require_readers(
        request.options.get("--workdir"), lambda: saved_run(request), step, "[arguments] --step"
    )


def asked_to_stop(ranks: Ranks, step: int) -> Callable[[], bool]:
    """Return a function that is true once a rank should stop; all ranks call it before each batch or token.

    step: the step of the checkpoint, for messages. A single process ends at once on a signal.
    """
    comm = ranks.comm
    if comm is None or ranks.world == 1:
        return lambda: False
    from mudd_core.run.loop import signals

    def stop() -> bool:
        comm.set_phase("evaluate", step)
        return ranks.any(signals.stop_reason() is not None)

    return stop
