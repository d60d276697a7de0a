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
from mudd_core.cli.argv import Invocation
from mudd_core.cli.main_help import main_help, version
from mudd_core.cli.names import ALIASES, COMMANDS, TOOLS
from mudd_core.cli.request import Request
from mudd_core.cli.requested import config_of, request_of
from mudd_core.programs.program import program_of_command


def take_signals(asked: Invocation) -> set[int]:
    """Install the handlers of a command that trains; returns the signals that stay blocked until it has its own."""
    if asked.starts_ranks:
        from mudd_core.cli import job

        return set(job.SIGNALS)
    if asked.trains or (asked.runs_on_ranks and is_rank()):
        from mudd_core.run.loop import signals

        signals.take_for_good(says=is_first_rank())
    return set()


def run(asked: Invocation, again: Callable[[Sequence[str]], int]) -> int:
    """Run the command of the arguments; returns the exit code. again: how one of several runs is run."""
    if asked.multirun:
        from mudd_core.cli import multirun

        return multirun.run(asked.words, again)
    if asked.starts_ranks:
        from mudd_core.cli import job, job_arguments

        wanted = job.requested_job(asked)
        job_arguments.require(wanted, asked)
        return job.run(wanted, job.program())
    if asked.tool == "doctor":  # it reports what the checks below refuse
        return _run_tool(asked.tool, asked)
    if not asked.names_help:
        require_address_space()
    if asked.runs_on_ranks and is_rank():
        from mudd_core.cli import rank

        return rank.main(asked)
    if asked.trains:
        require_one_process(asked.tool or "training")
    require_levels()
    if asked.tool is not None:
        return _run_tool(asked.tool, asked)
    request = request_of(asked)
    if request.options.keys() & {"--help", "--version"}:
        print(_information(request, asked.words))
        return 0
    from mudd_core.cli import commands

    return commands.run(request)


def _run_tool(tool: str, asked: Invocation) -> int:
    """Run a tool with the arguments after its name."""
    return int(importlib.import_module(TOOLS[tool][0]).main(list(asked.tool_words)))


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
    program = program_of_command(request.command) if words[0] in (request.command, "help") else None
    if program is not None:
        return texts.original_help(program, request.command)
    of_command = any(word in (*COMMANDS, *ALIASES) for word in words) or "--mode" in request.options
    return texts.command_help(request.command, config) if of_command or config else main_help()
