"""Check a job's arguments before mpirun starts, because mpirun would add its own lines to an error."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable

from mudd_core.base.errors import UserError
from mudd_core.cli.argv import Invocation, parse
from mudd_core.cli.job import JobRequest
from mudd_core.cli.names import TOOLS
from mudd_core.cli.request import Request
from mudd_core.cli.requested import request_of
from mudd_core.config import mesh_of


def require(wanted: JobRequest, typed: Invocation) -> None:
    """Raise UserError if the ranks would reject their arguments, or if the mesh does not fit the number of ranks.

    typed: the command line with the job's options, for corrected commands. If the job uses other hosts, files are not
    checked, because the ranks may find files that this host does not have.
    """
    job, asked = wanted.job, parse(wanted.words or ("train",))
    elsewhere = bool(job.hosts) or job.spread > 1
    with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
        if asked.command == "train":
            _require_training(typed, job.ranks, elsewhere)
            return
        require_run = _reader(asked, typed)
        if not elsewhere:
            require_run(job.ranks)


def require_train(request: Request) -> None:
    """Raise UserError for another program's command that does not train: only_eval=True."""
    if request.command != "train":
        raise UserError(
            f"[arguments] several ranks train, got the command {request.command}, which one process runs: leave "
            "out --ranks, --hosts and mpirun"
        )


def _require_training(asked: Invocation, ranks: int, elsewhere: bool) -> None:
    try:
        request = request_of(asked)
    except Exception:
        if elsewhere:
            return
        raise
    require_train(request)
    if request.config is not None:
        mesh_of(request.config, ranks)


def _reader(asked: Invocation, typed: Invocation) -> Callable[[int], None]:
    """Parse the arguments of a tool, or of a command that reads a run.

    Return a function that checks files and ranks.
    """
    if asked.tool is not None:
        job = [f"{option}={value}" for option, value in typed.job.options.items()]
        tool = importlib.import_module(TOOLS[asked.tool][0])
        require: Callable[[int], None] = tool.require_ranks(list(asked.tool_words), job)
        return require
    from mudd_core.cli.reading import require_ranks

    return require_ranks(request_of(typed))
