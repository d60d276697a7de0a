"""Several runs from one command line (--multirun), one after another."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.names import OPTIONS
from mudd_core.config.arguments import argument
from mudd_core.programs.moe import hydra
from mudd_core.programs.moe.keys import FOLDER

_COMMAND = "clm"


def run(words: Sequence[str], one: Callable[[Sequence[str]], int]) -> int:
    """Run each combination of the comma-separated values. The first exit code that is not 0 ends the series."""
    rest = [word for word in words if word != _COMMAND]
    options = [item for item in map(argument, rest) if item.option in OPTIONS]
    for item in options:
        if item.value is None and (value := OPTIONS[item.option][0]):
            raise UserError(f"[hydra] --multirun: expected {item.raw}={value}, with an equals sign")
    kept = [item.raw for item in options]
    if any(item.option == "--workdir" for item in options):
        raise UserError(
            f"[hydra] --multirun: expected {FOLDER}=DIR in place of --workdir; run i works in {FOLDER}/i"
        )
    jobs = hydra.jobs([word for word in rest if word not in kept], [_COMMAND, *kept])
    for number, job in enumerate(jobs, 1):
        print(f"run {number} of {len(jobs)}: {shlex.join([*typed_program(), *job])}", flush=True)
        if code := one(job):
            return code
    return 0
