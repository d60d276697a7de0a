"""Refuses the arguments of a job before mpirun starts, which would add lines of its own to the message."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable

from mudd_core.base.errors import UserError
from mudd_core.cli.argv import command_of, parse, tool_in
from mudd_core.cli.mpirun import Job
from mudd_core.cli.names import JOB_OPTIONS, TOOLS
from mudd_core.cli.request import Request
from mudd_core.config import mesh_of
from mudd_core.config.arguments import with_values


def require(job: Job, words: tuple[str, ...], typed: tuple[str, ...]) -> None:
    """UserError where the ranks would refuse their words, or a mesh that does not fit so many of them.

    typed: the words with those of the job, which a message proposes again. Where other hosts take part, files are not
    looked at: the ranks find those that this host may not have.
    """
    elsewhere = bool(job.hosts) or job.spread > 1
    words = words or ("train",)
    with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
        if command_of(words) == "train":
            _require_training(typed, job.ranks, elsewhere)
            return
        require_run = _reader(words, typed)
        if not elsewhere:
            require_run(job.ranks)


def require_train(request: Request) -> None:
    """UserError for a command of another program that does not train: only_eval=True, which its name does not say."""
    if request.command != "train":
        raise UserError(
            f"[arguments] several ranks train, got the command {request.command}, which one process runs: leave "
            "out --ranks, --hosts and mpirun"
        )


def _require_training(words: tuple[str, ...], ranks: int, elsewhere: bool) -> None:
    try:
        request = parse(words)
    except Exception:
        if elsewhere:
            return
        raise
    require_train(request)
    if request.config is not None:
        mesh_of(request.config, ranks)


def _reader(words: tuple[str, ...], typed: tuple[str, ...]) -> Callable[[int], None]:
    """Read the arguments of a command that reads a run, or of a tool; what it returns looks at files and ranks."""
    tool, rest = tool_in(words)
    if tool is not None:
        job = [f"{item.option}={value}" for item, value in with_values(typed) if item.option in JOB_OPTIONS]
        require: Callable[[int], None] = importlib.import_module(TOOLS[tool][0]).require_ranks(rest, job)
        return require
    from mudd_core.cli.reading import require_ranks

    return require_ranks(parse(typed))
