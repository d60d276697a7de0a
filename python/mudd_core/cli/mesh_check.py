"""Refuses a mesh that does not fit the ranks before mpirun starts, which would add lines of its own to the message."""

from __future__ import annotations

import contextlib
import os

from mudd_core.cli.argv import command_of, parse
from mudd_core.cli.mpirun import Job
from mudd_core.config import mesh_of


def require_mesh(job: Job, words: tuple[str, ...]) -> None:
    """UserError where the config of a training does not fit so many ranks, or where its arguments are wrong.

    Where other hosts take part, only the mesh is refused here: the ranks find their config file, this host may not.
    """
    if not words or command_of(words) != "train":
        return
    elsewhere = bool(job.hosts) or job.spread > 1
    with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
        try:
            request = parse(words)
        except Exception:
            if elsewhere:
                return
            raise
    if request.command == "train" and request.config is not None:
        mesh_of(request.config, job.ranks)
