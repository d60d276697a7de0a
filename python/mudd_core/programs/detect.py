"""Detect the grammar of a command line: mudd_core's, or the grammar of an original program."""

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
    """Remove the script of an original program from the start of the arguments; return (the mudd_core command, notes).

    MaxText/train.py before a yml file becomes no command; run_clm.py becomes the command clm.
    """
    file = words[0].rpartition("/")[2] if words else ""
    if not file.endswith(".py"):
        return "", []
    files = {name: command for program in programs() for name, command in program.files.items()}
    # A script without a command belongs to a program only if a yml file follows it.
    if not (file in files and (files[file] or is_yml("".join(words[1:2])))):
        return "", []
    return files[file], [f"'{words.pop(0)}': ignored, because mudd_core runs in its place"]


def program_of_script(path: str) -> Program | None:
    """Return the program of a script, named by its file or its folder, or of a yml file; None for other names."""
    *folders, file = path.split("/")
    if not file.endswith(".py"):
        return program_of(CommandLine(config=path)) if is_yml(path) else None
    return next((one for one in programs() if one.folder in folders or one.files.get(file)), None)


def program_of(asked: CommandLine) -> Program | None:
    """Return the program whose grammar a command line uses; None for mudd_core's own grammar."""
    return next((program for program in programs() if program.claims(asked)), None)


def resolve(asked: CommandLine) -> Resolved | None:
    """Return a command of an original program as an unchecked config; None for mudd_core's own grammar."""
    program = program_of(asked)
    refuse_devices(program is not None and program.of_device, asked.options)
    if program is None:
        return None
    resolved = program.resolve(asked)
    if resolved.config.log.style != "auto":
        return resolved
    return replace(resolved, config=replace_path(resolved.config, "log.style", resolved.style))


def known_alone(rows: Mapping[str, Row], names: Iterable[str]) -> Iterator[str]:
    """Yield the names that are keys of a grammar but not fields of a mudd_core config."""
    ours = fields_of_all()
    for name in names:
        if name in rows and field_path(name, ours) is None:
            yield name
