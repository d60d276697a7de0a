"""The entry point: find the command of a command line, run it, and convert every result into an exit code.

0 done; 2 bad arguments, config or work directory; 65 damaged input; 70 internal error; 74 a required write
failed; 75 stopped on request after saving; 76 diverged; 130 and 143 quit at once on a second SIGINT or SIGTERM.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import (
    command_line,
    is_first_rank,
    is_rank,
    require_address_space,
    require_levels,
    require_one_process,
)
from mudd_core.cli import main_help
from mudd_core.cli.exit_codes import exit_code
from mudd_core.cli.names import ALIASES, COMMANDS, TOOLS
from mudd_core.cli.standard_streams import flushed, named_streams, replace_unknown_characters, restart_in_utf8

if TYPE_CHECKING:
    from mudd_core.cli.argv import Invocation
    from mudd_core.cli.request import Request


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line, by default sys.argv, and return the exit code.

    If output was lost on a full disk, 0 becomes 74.
    """
    if words is None:
        restart_in_utf8()
    _fill_closed_streams()
    replace_unknown_characters()
    given = sys.argv[1:] if words is None else words
    with named_streams(), command_line(given):
        if words is None:
            code = _run(given, _take_signals(given))
        else:  # a program has called this; its handlers are restored afterwards
            with _signals_given_back():
                code = _run(given)
    return flushed(code)


@contextlib.contextmanager
def _signals_given_back() -> Iterator[None]:
    """On exit, remove the handlers that a command inside the block installed."""
    from mudd_core.run.loop import signals

    before = signals.taken()
    try:
        yield
    finally:
        if not before:
            signals.release()


def _take_signals(words: Sequence[str]) -> Invocation | None:
    """Unblock signals; if the command trains, install its handlers first, before the config file runs.

    Return the parsed command line; None if main_help can answer it.
    """
    blocked = set[int]()
    try:
        if _text(words) is not None or _code_asked(words) is not None:
            return None
        from mudd_core.cli import argv

        asked = argv.parse(words)
        blocked = _installed(asked)
        return asked
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals() - blocked)


def _installed(asked: Invocation) -> set[int]:
    """Install the handlers of a command that trains; return the signals that stay blocked until it has its own."""
    if asked.starts_ranks:
        from mudd_core.cli import job

        return set(job.SIGNALS)
    if asked.trains or (asked.runs_on_ranks and is_rank()):
        from mudd_core.run.loop import signals

        signals.take_for_good(says=is_first_rank())
    return set()


def _text(words: Sequence[str]) -> str | None:
    """Return the answer of main_help, which loads no config; None if the command line needs more."""
    return main_help.answer(words) if len(words) < 2 else None


def _code_asked(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the code of --explain-error, empty if it has none, and the arguments after it; None without the option."""
    end = len(main_help.CODE)
    for at, word in enumerate(words):
        if word[:end].replace("_", "-") == main_help.CODE and word[end : end + 1] in ("", "="):
            code, after = (
                (word[end + 1 :], at + 1) if word[end:] else ("".join(words[at + 1 : at + 2]), at + 2)
            )
            # it may be added to any command, with the options of that command
            return code, [other for other in words[after:] if "=" not in other and other[:1] != "-"]
    return None


def _fill_closed_streams() -> None:
    """Open /dev/null for closed standard streams. Otherwise the next opened file would get the stream's descriptor."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(
                os.devnull, os.O_RDWR
            )  # uses the lowest free descriptor, which is the closed stream's
            os.set_inheritable(null, True)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115


def _run(words: Sequence[str], asked: Invocation | None = None) -> int:
    """Run a command line and print its error. asked: the parsed command line, if it was parsed before."""
    try:
        _check_text(words)
        if (text := _text(words)) is not None:
            require_levels()
            print(text)
            return 0
        if (asked_code := _code_asked(words)) is not None:
            from mudd_core.cli.error_codes.lookup import explained

            print(explained(*asked_code))
            return 0
        from mudd_core.cli import argv

        return run(asked or argv.parse(words))
    except SystemExit as end:  # argparse raises this after a tool's help
        return int(end.code or 0)
    except (Exception, KeyboardInterrupt) as error:
        return exit_code(error)


def _check_text(words: Sequence[str]) -> None:
    """Raise UserError for bytes that are not UTF-8, in an argument or in the current folder."""
    try:
        here = os.getcwd()
    except OSError as error:
        raise UserError(
            f"[arguments] the current folder is gone ({error.strerror}); cd to another one"
        ) from error
    for text in (*words, here):
        if text != text.encode("utf-8", "replace").decode():
            raise UserError(f"[arguments] expected UTF-8, got {text!a}; rename the file or the folder")


def run(asked: Invocation) -> int:
    """Run the command of the arguments; return the exit code."""
    if asked.multirun:
        from mudd_core.cli import multirun

        return multirun.run(asked.words, _run)
    if asked.starts_ranks:
        from mudd_core.cli import job, job_arguments

        wanted = job.requested_job(asked)
        job_arguments.require(wanted, asked)
        return job.run(wanted, job.program())
    if asked.tool == "doctor":  # the doctor reports faults that the checks below would reject
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
    from mudd_core.cli.requested import request_of

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
    """Return the text of --version, --help or --help=all."""
    from mudd_core.cli import help as texts
    from mudd_core.cli.requested import config_of
    from mudd_core.programs.detect import program_of_script
    from mudd_core.programs.program import is_yml, program_of_command

    if "--version" in request.options:
        return main_help.version()
    wanted = request.options["--help"]
    if wanted not in ("", "all"):
        raise UserError(f"[arguments] --help: expected nothing or all after it, got '{wanted}'")
    file = request.options.get("--config")
    if file is not None and is_yml(file) and (program := program_of_script(file)) is not None:
        return texts.original_help(program, file)
    config = None if file is None else config_of(file, request.words)
    if wanted == "all":
        return texts.all_fields(config)
    asked = "".join(words[1:2]) if words[0] == "help" else words[0]
    program = program_of_command(asked) or program_of_script(asked)
    if program is not None:
        return texts.original_help(program, asked)
    of_command = any(word in (*COMMANDS, *ALIASES) for word in words) or "--mode" in request.options
    return texts.command_help(request.command, config) if of_command or config else main_help.main_help()
