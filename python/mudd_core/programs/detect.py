"""Detection of the grammar of a command line: our own, or the grammar of an original program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mudd_core.config.fields import replace_path
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.programs.mesh_sizes import refuse_devices
from mudd_core.programs.program import CommandLine, Program, is_yml, programs
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Row


def drop_program(words: list[str]) -> tuple[str, list[str]]:
    """Remove an original program's own file in front of its arguments; (its command here, a note on it).

    MaxText/train.py in front of a yml file has no command of its own; run_clm.py is clm.
    """
    file = words[0].rpartition("/")[2] if words else ""
    if not file.endswith(".py"):
        return "", []
    files = {name: command for program in programs() for name, command in program.files.items()}
    # A file without a command belongs to a program only in front of a yml file.
    if not (file in files and (files[file] or is_yml("".join(words[1:2])))):
        return "", []
    return files[file], [f"'{words.pop(0)}': dropped; this program takes its place"]


def program_of(asked: CommandLine) -> Program | None:
    """Return the program in whose grammar a command line is; None for our own."""
    return next((program for program in programs() if program.claims(asked)), None)


def resolve(asked: CommandLine) -> Resolved | None:
    """Return a command of an original program as a config, not checked yet; None for our own grammar."""
    program = program_of(asked)
    refuse_devices(program is not None and program.of_device, asked.options)
    if program is None:
        return None
    resolved = program.resolve(asked)
    if resolved.config.log.style != "auto":
        return resolved
    return replace(resolved, config=replace_path(resolved.config, "log.style", resolved.style))


def known_alone(rows: Mapping[str, Row], names: Iterable[str]) -> Iterator[str]:
    """Yield the names that a grammar has and this program has not."""
    ours = fields_of_all()
    for name in names:
        if name in rows and field_path(name, ours) is None:
            yield name
