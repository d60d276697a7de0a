"""Parse a command line once: its command or tool, options, overrides, and the ranks that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from mudd_core.base.errors import UserError
from mudd_core.cli.names import (
    ALIASES,
    COMMANDS,
    JOB_OPTIONS,
    OPTIONS,
    OWN_RANKS,
    TOOLS,
    TOOLS_ON_RANKS,
    is_optional,
)
from mudd_core.config.arguments import Argument, Arguments, with_values
from mudd_core.config.foreign import COMMANDS as FOREIGN
from mudd_core.config.foreign import SCRIPTS
from mudd_core.programs.program import program_of_command
from mudd_core.run.store.saved_run import is_run

_TRAINING = ("train", "bakeoff", "tune")
_INFORMING = ("--plan", "--params", "--help", "-h", "--version", "-V")
_HELP = {"--help", "-h", "--version", "-V"}
# Options of some commands that are names of config fields for the others.
_FIELDS_TOO = ("--tokenizer", "--template", "--num-samples", "--prompt-file")


@dataclass(frozen=True)
class Given:
    """The options of launch.py with their values, and all other arguments.

    stops: the values of --stop, the only option that may be repeated; `options` has the last value.
    """

    options: dict[str, str]
    words: list[str]
    stops: list[str]


@dataclass(frozen=True)
class Invocation:
    """A command line, parsed as far as possible without a config.

    words: the arguments as the user wrote them. command: the command or tool. tool: the tool, None for a command.
    tool_words: the arguments of the tool. first: the first argument if it is a command, possibly of another program;
    mode: the command of --mode; both are empty if absent. informs: the command only prints information. multirun: the
    command starts several runs, one after another. starts_ranks: this process starts ranks.
    """

    words: tuple[str, ...]
    command: str
    tool: str | None
    tool_words: tuple[str, ...]
    first: str
    mode: str
    informs: bool
    multirun: bool
    starts_ranks: bool

    @property
    def trains(self) -> bool:
        """True if the command trains."""
        return not self.informs and self.command in _TRAINING

    @property
    def runs_on_ranks(self) -> bool:
        """True if several ranks can share the command's work."""
        shared = self.command in OPTIONS["--ranks"][2] or self.command in TOOLS_ON_RANKS
        return not self.informs and shared

    @property
    def names_help(self) -> bool:
        """True if --help or --version is one of the arguments, without a value."""
        return not _HELP.isdisjoint(self.words)

    @property
    def named(self) -> str:
        """The command at the start of the line, with aliases resolved; train if there is none."""
        return ALIASES.get(self.first, self.first) or "train"

    @cached_property
    def job(self) -> Given:
        """The options for the process that starts ranks, and all other arguments; UserError for a missing value."""
        found, arguments = Given({}, [], []), Arguments(self.words)
        for item in arguments:
            if item.option not in JOB_OPTIONS:
                found.words.append(item.raw)
                continue
            value = arguments.value() if item.value is None else item.value
            if value is None:
                raise UserError(f"[arguments] {item.option}: expected a value after it")
            found.options[item.option] = value
        return found

    @cached_property
    def given(self) -> Given:
        """The options and overrides of a command; UserError for an option without its value."""
        words = [*self.words[1:], "--help"] if self.words[:1] == ("help",) else list(self.words)
        return _given(words[1:] if self.first else words, self.mode or self.named)


def parse(words: Sequence[str]) -> Invocation:
    """Parse the arguments of a command line. This raises no errors."""
    words = _without_scripts(words)
    items = list(with_values(words))
    options = {item.option for item, _ in items}
    tool, tool_words = _tool_in(words, items)
    front = words[0] if words else ""
    mode = next((value for item, value in items if item.option == "--mode"), "")
    mode = ALIASES.get(mode, mode)
    command = tool or mode or (ALIASES.get(front, front) if front in (*COMMANDS, *ALIASES) else "train")
    typed = "".join(words[1:2]) if front == "help" else front
    informs = not words or front == "help" or not options.isdisjoint(_INFORMING)
    is_command = typed in (*COMMANDS, *ALIASES) or program_of_command(typed) is not None
    return Invocation(
        words=tuple(words),
        command=command,
        tool=tool,
        tool_words=tuple(tool_words),
        first=typed if is_command else "",
        mode=mode,
        informs=informs,
        multirun=any(word in ("--multirun", "-m") for word in words),
        starts_ranks=not options.isdisjoint(JOB_OPTIONS) and not informs and command not in OWN_RANKS,
    )


def _without_scripts(words: Sequence[str]) -> list[str]:
    """Return a request for help with the command that replaces another program's script: train for pretrain.py.

    The script of a program with other keys stays if no command replaces it.
    """
    if _HELP.isdisjoint(words) and "help" not in words[:1]:
        return list(words)
    return [_replaced(word) for word in words]


def _replaced(word: str) -> str:
    file = word.rpartition("/")[2]
    if file not in SCRIPTS and not file.endswith(".py"):
        return word
    from mudd_core.programs.detect import program_of_script

    program = program_of_script(word)
    return SCRIPTS.get(file, word) if program is None else program.files.get(file) or word


def is_tune(word: str) -> bool:
    """Return True for a command or script of another program that tune replaces."""
    return "tune" in (FOREIGN.get(word), SCRIPTS.get(word.rpartition("/")[2]))


def _tool_in(words: Sequence[str], items: Sequence[tuple[Argument, str]]) -> tuple[str | None, list[str]]:
    """Return the tool that is the first argument or the value of --mode, and its arguments."""
    if words[:1] == ["help"] and (asked := _tool_in(words[1:], items[1:]))[0]:
        return asked[0], [*asked[1], "--help"]
    for count in (2, 1):  # "data show" is a command, and "data" is another one
        if (name := " ".join(words[:count])) in TOOLS and len(words) >= count:
            return name, list(words[count:])
    if len(words) > 1 and is_tune(words[0]):  # tune answers with the whole command
        return "tune", list(words)
    for i, (item, value) in enumerate(items):
        if item.option == "--mode" and value in TOOLS:
            return value, [*words[:i], *words[i + (2 if item.switch else 1) :]]
    return None, list(words)


def _given(words: Sequence[str], command: str) -> Given:
    """Separate the options of launch.py from all other arguments."""
    given, arguments = Given({}, [], []), Arguments(words)
    for item in arguments:
        name = {"-h": "--help", "-V": "--version"}.get(item.option, item.option)
        if command in OPTIONS.get(dashed := name.replace("_", "-"), ("", "", ()))[2]:
            name = dashed
        if name not in OPTIONS or (name in _FIELDS_TOO and command not in OPTIONS[name][2]):
            # The value must not be parsed as an option of launch.py.
            given.words.extend(arguments.typed(item) if item.switch else [item.raw])
            continue
        value = item.value if item.value is not None else _value_after(name, arguments)
        given.options[name] = value
        if name == "--stop":
            given.stops.append(value)
    return given


def _value_after(option: str, arguments: Arguments) -> str:
    """Remove and return the value of an option; raise UserError if a required value is missing."""
    wanted = OPTIONS[option][0]
    if is_optional(option):  # the folder of a run must not become the value of this option
        after = arguments.next()
        return "" if after is None or is_run(after.raw) else arguments.plain_value() or ""
    if wanted and (value := arguments.value()) is not None:
        return value
    if wanted:
        hint = ", such as --explain=optim.lr" if option == "--explain" else ""
        raise UserError(f"[arguments] {option}: expected {wanted} after it{hint}")
    return ""


def require_takers(command: str, options: Iterable[str]) -> None:
    """Raise UserError for an option that the command does not have."""
    for name in options:
        takers = OPTIONS[name][2]
        if takers and command not in takers:
            hint = "; --steps sets the number of steps" if (name, command) == ("--step", "train") else ""
            raise UserError(
                f"[arguments] {name}: expected the command {' or '.join(takers)}, got {command}{hint}"
            )
