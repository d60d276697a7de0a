"""Command lines that name the run of a request again, ready to paste."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mudd_core.base.surroundings import program
from mudd_core.cli.request import Request
from mudd_core.config.arguments import Arguments

_STOP = "train.stop_at"


def command_line(request: Request, command: str = "", ranks: int = 1) -> str:
    """The command that names this run again."""
    words = [*program(), *([command] if command else []), *([f"--ranks={ranks}"] if ranks > 1 else [])]
    if request.typed:
        return shlex.join([*words, f"--workdir={request.folder}"] if command else [*words, *request.typed])
    words.append(f"--config={request.options['--config']}")
    if "--workdir" in request.options:
        words.append(f"--workdir={request.options['--workdir']}")
    words += request.words
    return shlex.join(words)


def to_go_on(request: Request, reason: str, ranks: int) -> str:
    """The command that resumes a run that was stopped for a reason; without the train.stop_at that it has reached."""
    line = command_line(request, ranks=ranks)
    if reason != _STOP:
        return line
    words = shlex.split(line)
    kept = _without_stop(words)
    return shlex.join(kept if len(kept) < len(words) else [*words, f"{_STOP}=0"])  # else a file sets it


def _without_stop(words: Sequence[str]) -> list[str]:
    """The arguments without train.stop_at, in any of its forms."""
    kept, arguments = list[str](), Arguments(words)
    for item in arguments:
        if item.name.replace("-", "_") not in (_STOP, _STOP.partition(".")[2]):
            kept.append(item.raw)
        elif item.value is None:
            arguments.value()
    return kept
