"""The interface of an original program: its command line, keys, weights, log lines and files.

Each program is a folder, and its __init__.py defines the one object PROGRAM. A command in mudd_core's own grammar
imports only this module.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from mudd_core.base.errors import UserError
from mudd_core.config import config_folders, find_config
from mudd_core.config.arguments import argument
from mudd_core.config.foreign import ALIASES
from mudd_core.config.overrides import field_path
from mudd_core.config.programs import Programs
from mudd_core.config.schema import fields_of_all

if TYPE_CHECKING:
    from mudd_core.config import Config
    from mudd_core.data.rows import Prepared
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model
    from mudd_core.programs.resolved import Resolved
    from mudd_core.programs.row import Row
    from mudd_core.run.records.events import Validation
    from mudd_core.run.report.style import ComplianceLog, Style
    from mudd_core.run.store.metrics_file import Kind

DEVICES = "--devices"
"""The option for the number of devices that per_device_* batch sizes are multiplied by."""

KEY_PREFIX = "M_"
"""The prefix of environment variables that set keys of a yml file."""

_YML = (".yml", ".yaml")
_KEY = re.compile(r"[A-Za-z_][\w./@]*")
_COMMAND = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class CommandLine:
    """The parts of a command line, before its grammar is known.

    command: the first argument if it is a command, else empty. config: the value of --config, or a first argument that
    is a yml file. options: other options of launch.py (cli/names.py). `words`: all other arguments, as the user wrote
    them.
    notes: lines for the user about arguments that were dropped.
    """

    command: str = ""
    config: str = ""
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Program(ABC):
    """An original program; each folder has a subclass. The methods import their modules when they are called."""

    name: str
    """The name of the folder, which is also the value of log.style."""

    grammar: str
    """The name of its grammar, the prefix of its messages."""

    commands: tuple[str, ...] = ()
    """Commands that only this program has."""

    files: ClassVar[Mapping[str, str]] = {}
    """The scripts that users type before the arguments, and the command that replaces each."""

    folder = ""
    """The folder of its scripts in its repository; empty if the name of a script is enough."""

    config = ""
    """The argument before its keys that names a config, in its help."""

    flags = False
    """True if keys are typed as `--key value`."""

    of_device = False
    """True if batch sizes are per device, so that --devices multiplies them."""

    continues_text = False
    """True if its samples continue held-out documents, so that `sample` reads the text of the run."""

    systems: ClassVar[Mapping[str, str]] = {}
    """The names that `import --system` accepts for its weights, each with the module that defines SYSTEM."""

    exports: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The systems to export a family that transformers lacks, by family; the one with published weights comes first."""

    @abstractmethod
    def rows(self) -> tuple[Row, ...]:
        """Return the keys of the program's command line."""

    def claims(self, asked: CommandLine) -> bool:
        """Return whether a command line uses this program's grammar."""
        return asked.command in self.commands

    @abstractmethod
    def resolve(self, asked: CommandLine) -> Resolved:
        """Return the command as an ordinary, unchecked config; raise UserError that names a wrong key."""

    @abstractmethod
    def style(self, config: Config) -> type[Style]:
        """Return the class of the program's log lines and tags."""

    def metrics_kind(self, config: Config) -> Kind:
        """Return the kind of log.metrics_file: mudd_core's records, or a file or folder of the program's objects."""
        return "rows"

    def compliance_log(self) -> type[ComplianceLog] | None:
        """Return the class that writes log.mllog; None if the program has no such log."""
        return None

    def write_sample(
        self, config: Config, text: Prepared, model: Model, tokenizer: Tokenizer, write: Callable[[str], None]
    ) -> None:
        """Write the samples of `sample` in the program's format; called if continues_text is set."""
        raise NotImplementedError(self.name)

    def validation_lines(self, result: Validation) -> list[str]:
        """Return the lines that `validate` prints after its result."""
        return []


def programs() -> Iterator[Program]:
    """Import and yield every program."""
    yield from Programs[Program]()


def program_named(name: str) -> Program | None:
    """Return the program that a value of log.style names; None if it names no program."""
    return Programs[Program]().named(name)


def program_of_command(word: str) -> Program | None:
    """Return the program that has this argument as a command; None if there is none."""
    if not _COMMAND.fullmatch(word):
        return None
    return next((program for program in programs() if word in program.commands), None)


def program_of_grammar(grammar: str) -> Program | None:
    """Return the program with this grammar; None if there is none."""
    return next((program for program in programs() if program.grammar == grammar), None)


def table() -> tuple[Row, ...]:
    """Return the keys of all programs, and the environment variables that they read."""
    from mudd_core.programs import environment

    return (*(row for program in programs() for row in program.rows()), *environment.ROWS)


@cache
def rows_of(grammar: str) -> dict[str, Row]:
    """Return the keys that a program's grammar accepts, by name; empty for mudd_core's own grammar.

    The grammar "environment" has the environment variables.
    """
    return {row.name: row for row in table() if row.grammar == grammar} if grammar else {}


def is_yml(word: str) -> bool:
    """Return whether an argument is the name of a yml file, judged by its suffix."""
    return "=" not in word and not word.startswith("-") and word.endswith(_YML)


def flag_names(words: Sequence[str]) -> Iterator[str]:
    """Yield the names of `--name` arguments, with underscores instead of dashes."""
    for item in map(argument, words):
        if item.mark == "--":
            yield item.name.replace("-", "_")


def assigned_names(words: Sequence[str]) -> Iterator[str]:
    """Yield the names of `name=value`, `+name=value` and `~name` arguments."""
    for item in map(argument, words):
        assigns = item.value is not None and item.mark in ("", "+", "++")
        if item.mark == "~" or (assigns and _KEY.fullmatch(item.key)):
            yield item.name


def is_our_own(asked: CommandLine) -> bool:
    """Return whether a command line is certainly in mudd_core's own grammar, so that no program must be imported.

    This is the case if the config is absent or shipped, and every name is a mudd_core field.
    """
    names = [*flag_names(asked.words), *assigned_names(asked.words)]
    if asked.config:
        if is_yml(asked.config) or asked.config in ALIASES or not _is_shipped(asked.config):
            return False
    elif any(flag_names(asked.words)):  # some flags of programs are also names of fields
        return False
    ours = fields_of_all() if names else ()
    return program_of_command(asked.command) is None and all(field_path(name, ours) for name in names)


def _is_shipped(config: str) -> bool:
    """Return whether a config is a file in configs/."""
    try:
        file = find_config(config).resolve()
    except UserError:
        return False
    return any(file.is_relative_to(folder) for folder in config_folders())
