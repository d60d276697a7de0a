"""The names that a shell completes: commands with their options, fields with their values, configs."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mudd_core.cli.names import ALIASES, COMMANDS, OPTIONS, READING, TOOLS
from mudd_core.config import FAMILIES
from mudd_core.config.config_files import config_files
from mudd_core.config.fields import FieldInfo
from mudd_core.config.schema import fields_of_all

# Tools whose first argument is one of a few names.
PARTS = {
    "mup": ("check", "transfer"),
    "completion": ("bash", "zsh"),
    "configs": tuple(FAMILIES),
    "help": (*COMMANDS, *(name for name in TOOLS if " " not in name)),
}
# Tools that print their help below their parts.
_WITH_PARTS = ("mup check", "mup transfer")
_OPTION = re.compile(r"^  (?:-\w, )?(--[\w-]+)(?:[ =](\S+))?", re.MULTILINE)
_RUN = re.compile(r"--trust-code|^usage: .* \[?RUN\b", re.MULTILINE)
_VALUES = {"--split": ("valid", "test"), "--help": ("all",), "--step": ("best",)}


@dataclass(frozen=True)
class Names:
    """The names of each kind. options: of each command, with = if a value follows; values: by option or field.

    with_fields: the commands that accept fields; with_run: the commands that accept the folder of a run.
    """

    commands: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    fields: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    configs: tuple[str, ...]
    with_fields: tuple[str, ...]
    with_run: tuple[str, ...]


def known_names() -> Names:
    """Return the names of this version; the help of each tool has its options."""
    helps = {name: _help(name) for name in (*TOOLS, *_WITH_PARTS) if name != "completion"}
    infos = fields_of_all()
    values = {info.path: tuple(_choices(info)) for info in infos if _choices(info)}
    for text in helps.values():
        values |= {option: _listed(value) for option, value in _OPTION.findall(text) if value[:1] == "{"}
    commands = (*COMMANDS, *ALIASES)
    return Names(
        commands=(*commands, *TOOLS),
        options={
            **{name: _own(ALIASES.get(name, name)) for name in commands},
            **{name: tuple(_of_help(text)) for name, text in helps.items()},
            "completion": ("--help",),
        },
        fields=tuple(info.path for info in infos),
        values={**values, **_VALUES, "--mode": commands, "model.family": tuple(FAMILIES)},
        configs=tuple(config_files()),
        with_fields=(
            *commands,
            *(name for name, text in helps.items() if "set fields of the config" in text),
        ),
        with_run=(*_read(commands), *(name for name, text in helps.items() if _RUN.search(text))),
    )


def _read(commands: tuple[str, ...]) -> Iterator[str]:
    """Yield the commands that read a run."""
    return (name for name in commands if ALIASES.get(name, name) in READING)


def _own(command: str) -> tuple[str, ...]:
    """Return the options of a command of one run."""
    taken = ((name, value) for name, (value, _, takers) in OPTIONS.items() if command in takers or not takers)
    return tuple(f"{name}=" if value and not value.startswith("[") else name for name, value in taken)


def _of_help(text: str) -> Iterator[str]:
    """Yield the options in the help of a tool."""
    return (f"{option}=" if value else option for option, value in dict(_OPTION.findall(text)).items())


def _help(tool: str) -> str:
    """Return the help of a tool."""
    name = tool if tool in TOOLS else tool.partition(" ")[0]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        importlib.import_module(TOOLS[name][0]).main([*tool.removeprefix(name).split(), "--help"])
    return output.getvalue()


def _listed(value: str) -> tuple[str, ...]:
    """Return the values of `{a,b}` in a help text."""
    return tuple(value.strip("{}").split(","))


def _choices(info: FieldInfo) -> tuple[str, ...]:
    """Return the values of a field that has few."""
    return ("true", "false") if info.kind is bool else info.choices
