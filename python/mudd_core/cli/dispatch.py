"""Finds the command that the arguments ask for, and runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import (
    is_first_rank,
    is_rank,
    require_address_space,
    require_levels,
    require_one_process,
)
from mudd_core.cli.argv import (
    asks_for_multirun,
    config_of,
    parse,
    runs_on_ranks,
    starts_ranks,
    tool_in,
    trains,
)
from mudd_core.cli.main_help import main_help, version
from mudd_core.cli.names import ALIASES, COMMANDS, TOOLS
from mudd_core.cli.request import Request
from mudd_core.grammars import detect


def take_signals(words: Sequence[str]) -> set[int]:
    """Install the handlers of a command that trains; returns the signals that stay blocked until it has its own."""
    if starts_ranks(words):
        from mudd_core.cli import job

        return set(job.SIGNALS)
    if trains(words) or (runs_on_ranks(words) and is_rank()):
        from mudd_core.run.loop import signals

        signals.take_for_good(says=is_first_rank())
    return set()


def run(words: Sequence[str], again: Callable[[Sequence[str]], int]) -> int:
    """Run the command of the arguments; returns the exit code. again: how one of several runs is run."""
    if asks_for_multirun(words):
        from mudd_core.cli import multirun

        return multirun.run(words, again)
    if starts_ranks(words):
        from mudd_core.cli import job, job_arguments

        wanted = job.requested_job(words)
        job_arguments.require(wanted.job, wanted.words, tuple(words))
        return job.run(wanted, job.program())
    tool, rest = tool_in(words)
    if tool == "doctor":  # it reports what the checks below refuse
        return int(importlib.import_module(TOOLS[tool][0]).main(rest))
    if not {"--help", "-h", "--version", "-V"} & set(words):
        require_address_space()
    if runs_on_ranks(words) and is_rank():
        from mudd_core.cli import rank

        return rank.main(words)
    if trains(words):
        require_one_process(tool or "training")
    require_levels()
    if tool is not None:
        return int(importlib.import_module(TOOLS[tool][0]).main(rest))
    request = parse(words)
    if request.options.keys() & {"--help", "--version"}:
        print(_information(request, words))
        return 0
    from mudd_core.cli import commands

    return commands.run(request)


def _information(request: Request, words: Sequence[str]) -> str:
    """What --version, --help or --help=all prints."""
    from mudd_core.cli import help as texts

    if "--version" in request.options:
        return version()
    wanted = request.options["--help"]
    if wanted not in ("", "all"):
        raise UserError(f"[arguments] --help: expected nothing or all behind it, got '{wanted}'")
    file = request.options.get("--config")
    config = None if file is None else config_of(file, request.words)
    if wanted == "all":
        return texts.all_fields(config)
    if words[0] in detect.COMMANDS or (words[0] == "help" and request.command in detect.COMMANDS):
        return texts.original_help(request.command)
    of_command = any(word in (*COMMANDS, *ALIASES) for word in words) or "--mode" in request.options
    return texts.command_help(request.command, config) if of_command or config else main_help()
