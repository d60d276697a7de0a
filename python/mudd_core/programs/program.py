"""The interface of an original program: its command line, keys, weights, log lines and files.

Each program is a folder here, and its __init__.py has the one object PROGRAM. A command in our own grammar imports this
module alone.
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
"""The option for the devices whose per_device_* batches a run takes together."""

KEY_PREFIX = "M_"
"""The beginning of the variables that set keys of a yml file."""

_YML = (".yml", ".yaml")
_KEY = re.compile(r"[A-Za-z_][\w./@]*")
_COMMAND = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class CommandLine:
    """A command line in parts, before its grammar is known.

    command: the first argument if it is a command, else empty. config: value of --config, or a first argument that is
    a yml file. options: other options of this program (cli/names.py). words: all else, as typed. notes: lines for the
    user about what was dropped before.
    """

    command: str = ""
    config: str = ""
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Program(ABC):
    """An original program, with a subclass in its folder. The methods import what they need."""

    name: str
    """Its folder, which is also the value of log.style."""

    grammar: str
    """The name of its command line in messages."""

    commands: tuple[str, ...] = ()
    """First arguments that only this program has."""

    files: ClassVar[Mapping[str, str]] = {}
    """Its own files that users type before the arguments, and the command that replaces each."""

    flags = False
    """True if its keys are typed as `--key value`."""

    of_device = False
    """True if it has batch sizes of one device, which --devices multiplies."""

    systems: ClassVar[Mapping[str, str]] = {}
    """The names that `import --system` takes for its weights, each with the module that has the SYSTEM."""

    exports: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The systems for a family that Hugging Face lacks, by family; the one of published weights comes first."""

    @abstractmethod
    def rows(self) -> tuple[Row, ...]:
        """Return the keys of its command line."""

    def claims(self, asked: CommandLine) -> bool:
        """Return whether a command line is in its grammar."""
        return asked.command in self.commands

    @abstractmethod
    def resolve(self, asked: CommandLine) -> Resolved:
        """Return the command as an ordinary config, not checked yet; UserError names the key that is wrong."""

    @abstractmethod
    def style(self, config: Config) -> type[Style]:
        """Return the class of its log lines and tags."""

    def metrics_kind(self, config: Config) -> Kind:
        """Return what log.metrics_file has: our rows, or a file or a folder of the program's own objects."""
        return "rows"

    def compliance_log(self) -> type[ComplianceLog] | None:
        """Return the class that writes log.mllog, if this program has that log."""
        return None

    def write_sample(
        self, config: Config, text: Prepared, model: Model, tokenizer: Tokenizer, write: Callable[[str], None]
    ) -> bool:
        """Write the samples of a plain `sample` as the program does; return False if it has no such format."""
        return False

    def validation_lines(self, result: Validation) -> list[str]:
        """Return the lines that follow the result of `validate`."""
        return []


def programs() -> Iterator[Program]:
    """Yield every program, imported."""
    yield from Programs[Program]()


def program_named(name: str) -> Program | None:
    """Return the program of a value of log.style; None for the values auto and ours."""
    return Programs[Program]().named(name)


def program_of_command(word: str) -> Program | None:
    """Return the program whose command a first argument is."""
    if not _COMMAND.fullmatch(word):
        return None
    return next((program for program in programs() if word in program.commands), None)


def program_of_grammar(grammar: str) -> Program | None:
    """Return the program of a grammar."""
    return next((program for program in programs() if program.grammar == grammar), None)


def table() -> tuple[Row, ...]:
    """Return the keys of all programs, and the variables of the environment that they read."""
    from mudd_core.programs import environment

    return (*(row for program in programs() for row in program.rows()), *environment.ROWS)


@cache
def rows_of(grammar: str) -> dict[str, Row]:
    """Return the keys that a program's grammar accepts, by name; empty for mudd_core's own grammar.

    The grammar "environment" has the environment variables.
    """
    return {row.name: row for row in table() if row.grammar == grammar} if grammar else {}


def is_yml(word: str) -> bool:
    """Return whether an argument names a yml file, by its ending."""
    return "=" not in word and not word.startswith("-") and word.endswith(_YML)


def flag_names(words: Sequence[str]) -> Iterator[str]:
    """Yield the names of `--name` arguments, with underscores."""
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
    """Return whether a command line is surely in our own grammar, so that no program is imported.

    Its config is a shipped one, or there is none, and every name on it is one of our fields.
    """
    names = [*flag_names(asked.words), *assigned_names(asked.words)]
    if asked.config:
        if is_yml(asked.config) or asked.config in ALIASES or not _is_shipped(asked.config):
            return False
    elif any(flag_names(asked.words)):  # the flags of a program may be among our fields
        return False
    ours = fields_of_all() if names else ()
    return program_of_command(asked.command) is None and all(field_path(name, ours) for name in names)


def _is_shipped(config: str) -> bool:
    """Return whether a config is one of configs/."""
    try:
        file = find_config(config).resolve()
    except UserError:
        return False
    return any(file.is_relative_to(folder) for folder in config_folders())
