"""The command `train --plan`, and the plan that other commands print."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from mudd_core.base.show.json_text import json_text
from mudd_core.cli.argv import parse
from mudd_core.cli.job import requested_job
from mudd_core.cli.json_values import plan_values
from mudd_core.cli.names import JOB_OPTIONS
from mudd_core.cli.request import Request
from mudd_core.cli.same_run import command_line, on_mesh
from mudd_core.cli.second_run import refusal
from mudd_core.config import Config, mesh_of
from mudd_core.config.values import number
from mudd_core.data.source_check import check_sources
from mudd_core.engine.memory import GIB
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.plan_report import Planned, planned
from mudd_core.run.store.mirror import Mirror
from mudd_core.run.store.run_as_text import require_text
from mudd_core.run.store.run_folder import RunFolder


def print_plan(request: Request) -> None:
    """Print the plan of a training, and a note if the training would be refused."""
    config, folder = request.required_config(), request.folder
    if folder.url:
        Mirror(folder, writes=False)  # raises UserError if a run could not use the URL
    require_text(config, folder)
    check_sources(config)
    found = plan(config, folder, request.options, shlex.split(command_line(request)))
    refused = refusal(request)
    if "--json" in request.options:
        print(json_text("plan", plan_values(config, found, refused or None)))
        return
    print(found.text)
    if refused:
        print(f"note: training will be refused: {refused}")


def plan(
    config: Config, folder: RunFolder, options: Mapping[str, str], line: Sequence[str], counted: float = 1.0
) -> Planned:
    """Return the plan of --plan. options: the options of the command line, including --ranks. line: the command itself.

    counted: the fraction of targets that contribute to the loss.
    """
    room, hosts = _node_memory(options), options.get("--hosts", "")
    return planned(
        config,
        folder,
        _place(config, options),
        room,
        lambda choice: on_mesh(line, hosts, config.mesh, choice),
        counted,
    )


def _place(config: Config, options: Mapping[str, str]) -> Place:
    """Return the ranks for which a plan is made."""
    words = [f"{name}={options[name]}" for name in JOB_OPTIONS if name in options]
    if not words:
        return ALONE
    job = requested_job(parse(words)).job
    mesh_of(config, job.ranks)
    return Place(job.ranks, job.on_a_host)


def _node_memory(options: Mapping[str, str]) -> int:
    """Return the bytes of --node-memory; 0 without it."""
    if "--node-memory" not in options:
        return 0
    return int(GIB * number("[arguments] --node-memory", options["--node-memory"], above=0))
