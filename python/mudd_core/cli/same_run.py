"""Command lines that name the run of a request, ready to paste."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mudd_core.base.surroundings import typed_program
from mudd_core.cli.names import TYPED
from mudd_core.cli.request import Request
from mudd_core.config.arguments import without
from mudd_core.programs.program import KEY_PREFIX, is_yml

if TYPE_CHECKING:
    from mudd_core.config import MeshConfig
    from mudd_core.run.build.mesh_search import Choice

_STOP = "train.stop_at"


@contextmanager
def typed(words: Sequence[str]) -> Iterator[None]:
    """Inside the block, messages about resuming a run name this command line."""
    os.environ[TYPED] = shlex.join([*_variables(words), *typed_program(), *words])
    try:
        yield
    finally:
        del os.environ[TYPED]


def _variables(words: Sequence[str]) -> list[str]:
    """Return `env M_<KEY>=VALUE ...` for the variables that set keys of a yml file; empty for other commands."""
    if not any(is_yml(word) for word in words):
        return []
    found = [f"{name}={text}" for name, text in sorted(os.environ.items()) if name.startswith(KEY_PREFIX)]
    return ["env", *found] if found else []


def command_line(request: Request, ranks: int = 1) -> str:
    """Return the command line that starts or resumes this run."""
    started = os.environ.get(TYPED, "")
    if started:
        return started
    words = [*typed_program(), *([f"--ranks={ranks}"] if ranks > 1 else [])]
    if request.typed:
        return shlex.join([*_variables(request.typed), *words, *request.typed])
    words.append(f"--config={request.options['--config']}")
    if "--workdir" in request.options:
        words.append(f"--workdir={request.options['--workdir']}")
    words += request.words
    return shlex.join(words)


def to_go_on(request: Request, reason: str, ranks: int) -> str:
    """Return the command that resumes a stopped run, without train.stop_at if the run has reached it."""
    line = command_line(request, ranks=ranks)
    if reason != _STOP:
        return line
    words = shlex.split(line)
    kept = _without_stop(words)
    return shlex.join(
        kept if len(kept) < len(words) else [*words, f"{_STOP}=0"]
    )  # otherwise a file sets the field


def _without_stop(words: Sequence[str]) -> list[str]:
    """Return the arguments without train.stop_at, in any of its forms."""
    return without(words, (_STOP, _STOP.partition(".")[2]))


def on_mesh(line: Sequence[str], hosts: str, mesh: MeshConfig, choice: Choice) -> str:
    """Return the command that trains a plan's run on another mesh; further hosts have numbered placeholders.

    line: the command of the plan. hosts: the value of --hosts. mesh: the mesh of the plan.
    """
    place, named = choice.place, [host for host in hosts.split(",") if host]
    kept = without(line, ("ranks", "hosts", "node_memory"), ("--plan",))
    words = [*choice.arguments(kept, mesh), f"--ranks={place.world}"]
    if place.nodes > 1:
        numbered = (f"HOST{number}" for number in range(len(named) + 1, place.nodes + 1))
        words.append(f"--hosts={','.join([*named, *numbered])}")
    return shlex.join(words)
