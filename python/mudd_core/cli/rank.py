"""One rank of a launched job. Rank 0 reads the arguments, all ranks agree on them, and all exit with the same code."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from mudd_core import __version__, _core
from mudd_core.base.errors import ReportedElsewhereError, UserError
from mudd_core.base.types import JsonObject
from mudd_core.cli import commands
from mudd_core.cli.argv import Invocation
from mudd_core.cli.job_arguments import require_train
from mudd_core.cli.names import CODE_FILE, TOOLS
from mudd_core.cli.request import Request
from mudd_core.cli.requested import request_of
from mudd_core.cli.training import train
from mudd_core.config import (
    Config,
    DistConfig,
    apply_overrides,
    check_config,
    config_hash,
    from_dict,
    split_words,
    to_dict,
)
from mudd_core.config.arguments import Arguments
from mudd_core.config.own_files import fault_in_own_file
from mudd_core.dist import Comm, launched
from mudd_core.run.ranks.rank_checks import hold_machine
from mudd_core.run.ranks.ranks import Ranks, everybodys, exit_code, known_to_all
from mudd_core.run.store.config_source import replay
from mudd_core.run.store.own_code import own_texts, run_named


def main(asked: Invocation) -> int:
    """Join a launched job and run the command; return the exit code."""
    options = join_options(asked.words)
    try:
        comm = launched(node=options.node, debug=options.debug, join_timeout=options.join_timeout)
    except ReportedElsewhereError as error:
        return error.exit_code
    if comm.rank:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # rank 0 prints
        # the module prints this warning at import
        warnings.filterwarnings("ignore", category=UserWarning, module=r"mudd_core\.")
    ranks = Ranks(comm)
    code = train_as_rank(asked, ranks, options) if asked.command == "train" else read_as_rank(asked, ranks)
    sys.stdout.flush()
    leave(comm)
    if comm.rank == 0 and CODE_FILE in os.environ:
        Path(os.environ[CODE_FILE]).write_text(str(code), encoding="ascii")
    return code


def leave(comm: Comm) -> None:
    """Leave the job after all files are closed and synced. If another rank failed, the job ends soon after."""
    with contextlib.suppress(_core.PeerError):
        comm.close()


def join_options(words: Sequence[str]) -> DistConfig:
    """Return the dist fields in the arguments, because ranks join before one of them reads the config."""
    own, arguments = list[str](), Arguments(words)
    for item in arguments:
        if item.name.startswith("dist."):
            own += arguments.typed(item) if item.switch else [item.raw]
    config = apply_overrides(Config(), split_words(own, Config()))
    check_config(config)
    return config.dist


def train_as_rank(asked: Invocation, ranks: Ranks, joined: DistConfig | None = None) -> int:
    """Train with these arguments on every rank; return the exit code, which is the same on all ranks.

    joined: the settings with which the ranks joined. An error on one rank ends the whole job with one message and the
    error's code.
    """

    def training() -> int:
        request = shared_request(asked, ranks)
        if joined is not None:
            config = request.required_config()
            ranks.together(lambda: _require_joined(config.dist, joined))
        return train(request, ranks)

    return ended(training, ranks)


def read_as_rank(asked: Invocation, ranks: Ranks) -> int:
    """Run a tool, or a command that reads runs, on every rank; in other respects like train_as_rank."""

    def work() -> int:
        _agree(asked.words, ranks)
        if asked.tool is not None:
            tool = importlib.import_module(TOOLS[asked.tool][0])
            return int(tool.by_ranks(list(asked.tool_words), ranks))
        request = ranks.in_turn(lambda: request_of(asked))
        return commands.run(request, ranks)

    return ended(work, ranks)


def ended(work: Callable[[], int], ranks: Ranks) -> int:
    """Return the result of `work`, or print its error and return the error's code."""
    try:
        return work()
    except _core.PeerLeftError as error:
        _fail(ranks, 70, error)  # a rank of this program exited too early, which is an internal error
        return 70
    except _core.PeerError:
        return 70  # the failed rank prints the cause, and its code becomes the job's code
    except BaseException as error:
        if not known_to_all(error):
            _fail(ranks, exit_code(error), error)
        elif not isinstance(error, ReportedElsewhereError) and (ranks.first or not everybodys(error)):
            place = "" if ranks.first else f"rank {ranks.rank} on {socket.gethostname()}: "
            print(
                f"{_trace(error)}error: {place}{fault_in_own_file(error) or error}",
                file=sys.stderr,
                flush=True,
            )
        return exit_code(error)


def _fail(ranks: Ranks, code: int, error: BaseException) -> None:
    """End the job, because its other ranks would wait for this one. The Comm adds rank, host, step and phase."""
    assert ranks.comm is not None
    ranks.comm.fail(code, _trace(error) or fault_in_own_file(error) or f"{type(error).__name__}: {error}")


def _trace(error: BaseException) -> str:
    """Return the traceback of an error, unless its message is for the user."""
    if hasattr(error, "exit_code") or fault_in_own_file(error):
        return ""
    return "".join(traceback.format_exception(error))


def _require_joined(asked: DistConfig, joined: DistConfig) -> None:
    """Raise UserError if the config file sets a field that must be known before joining."""
    for name in ("node", "debug", "join_timeout"):
        wanted = getattr(asked, name)
        if wanted != getattr(joined, name):
            raise UserError(
                f"[dist] {name}: the config says {wanted!r}, but the ranks join before it is read; "
                f"type it on the command line: dist.{name}={str(wanted).lower()}"
            )


def shared_request(asked: Invocation, ranks: Ranks) -> Request:
    """Return the request: rank 0 runs the config file and sends the result to the others as JSON.

    The other ranks also run files that register readers or schemes, but only for these registrations.
    """
    _agree(asked.words, ranks)

    request = Request()

    def read() -> JsonObject:
        nonlocal request
        request = request_of(asked)
        require_train(request)
        return {
            "command": request.command,
            "config": to_dict(request.required_config()),
            "words": [*request.words],
            "options": {**request.options},
            "typed": [*request.typed],
            "file": "" if request.source is None else request.source.file,
            "own_files": own_texts(request.required_config()),
            "registers": [] if request.source is None else [*request.source.registers],
        }

    sent = ranks.from_first(read)
    if not ranks.first:
        if sent["registers"]:
            replay(Path(sent["file"]), sent["registers"])
        for key, name, text in sent["own_files"]:
            run_named(key, name, text.encode("latin-1"))
        request = Request(sent["command"], from_dict(sent["config"]), sent["words"], sent["options"])
        request.typed = sent["typed"]
    config = request.required_config()
    ranks.agree({"config": config_hash(config)})
    hold_machine(ranks, config)
    return request


def _agree(words: Sequence[str], ranks: Ranks) -> None:
    """Raise UserError if a rank runs another version of the program."""
    ranks.agree(
        {
            "arguments": list(words),
            "version": __version__,
            "fp32 order": _core.fp32_order(),
            "MUDD_EMULATE": os.environ.get("MUDD_EMULATE", ""),
        }
    )
