"""Reads the arguments of a command line into a Request: command, options, config with its overrides."""

from __future__ import annotations

from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.cli.corrected import (
    file_after,
    missing_config,
    other_names,
    refuse_bare,
    require_run,
    take_run,
)
from mudd_core.cli.names import (
    ALIASES,
    COMMANDS,
    JOB_OPTIONS,
    OPTIONS,
    OWN_RANKS,
    READING,
    TOOLS,
    TOOLS_ON_RANKS,
    is_optional,
    known_words,
)
from mudd_core.cli.originals import check_takers, load_original
from mudd_core.cli.request import Request
from mudd_core.config import Config, apply_overrides, check_config, read_config, split_words, typed_names
from mudd_core.config.arguments import Arguments, argument, with_values
from mudd_core.config.suggest import nearest
from mudd_core.grammars import detect
from mudd_core.run.store.config_source import recorded, resumed
from mudd_core.run.store.own_code import require_named_reader, run_copies


def _command(name: str) -> str:
    command = ALIASES.get(name, name)
    if command not in COMMANDS:
        known = [*COMMANDS, *ALIASES, *TOOLS]
        hint = nearest(name, known) or f"; expected one of {', '.join((*COMMANDS, *TOOLS))}"
        raise UserError(f"[arguments] unknown command '{name}'{hint}")
    return command


def tool_in(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The command with words of its own that is asked for, as the first word or by --mode, and those words."""
    if words[:1] == ["help"] and (asked := tool_in(words[1:]))[0]:
        return asked[0], [*asked[1], "--help"]
    for count in (2, 1):  # "data show" is a command, and "data" another one
        if (name := " ".join(words[:count])) in TOOLS and len(words) >= count:
            return name, list(words[count:])
    for i, (item, value) in enumerate(with_values(words)):
        if item.option == "--mode" and value in TOOLS:
            return value, [*words[:i], *words[i + (2 if item.switch else 1) :]]
    return None, list(words)


_TRAINING = ("train", "bakeoff", "tune")
_INFORMING = ("--plan", "--params", "--help", "-h", "--version", "-V")


def command_of(words: Sequence[str]) -> str:
    """The command or tool that the arguments ask for, as far as that is seen without the config."""
    tool, _ = tool_in(words)
    first = words[0] if words else ""
    named = _mode(words) or (first if first in (*COMMANDS, *ALIASES) else "train")
    return tool or ALIASES.get(named, named)


def _informs(words: Sequence[str]) -> bool:
    """Whether the arguments ask for a text alone."""
    return not words or words[0] == "help" or any(item.option in _INFORMING for item, _ in with_values(words))


def trains(words: Sequence[str]) -> bool:
    """Whether the arguments ask for training, as far as that is seen without the config."""
    return not _informs(words) and command_of(words) in _TRAINING


def runs_on_ranks(words: Sequence[str]) -> bool:
    """Whether the arguments ask for work that several ranks share."""
    command = command_of(words)
    return not _informs(words) and (command in OPTIONS["--ranks"][2] or command in TOOLS_ON_RANKS)


def asks_for_multirun(words: Sequence[str]) -> bool:
    """Whether the arguments ask for several runs, one after another."""
    return any(word in ("--multirun", "-m") for word in words)


def starts_ranks(words: Sequence[str]) -> bool:
    """Whether the arguments ask for ranks that this process is to start."""
    asked = any(argument(word).option in JOB_OPTIONS for word in words)
    return asked and not _informs(words) and command_of(words) not in OWN_RANKS


# Options of some commands, and fields of the config for the others.
_FIELDS_TOO = ("--tokenizer", "--num-samples", "--prompt-file")


def _mode(words: Sequence[str]) -> str:
    """The command of --mode; empty without one."""
    modes = (value for item, value in with_values(words) if item.option == "--mode")
    value = next(modes, "")
    return ALIASES.get(value, value)


def _is_name(word: str) -> bool:
    """Whether an argument could be meant as a command: no option, no assignment, no yml file."""
    return word != "help" and word[:1].isalpha() and "=" not in word and not detect.is_yml(word)


def _read_options(request: Request, words: Sequence[str], command: str) -> None:
    """Add the options of this program to the request, and all other arguments to its words."""
    arguments = Arguments(words)
    for item in arguments:
        name = {"-h": "--help", "-V": "--version"}.get(item.option, item.option)
        if command in OPTIONS.get(dashed := name.replace("_", "-"), ("", "", ()))[2]:
            name = dashed
        if name not in OPTIONS or (name in _FIELDS_TOO and command not in OPTIONS[name][2]):
            # Its value must not be read as an option of this program.
            request.words += arguments.typed(item) if item.switch else [item.raw]
            continue
        value = item.value
        if is_optional(name):
            value = file_after(arguments) if value is None else value
        elif OPTIONS[name][0] and value is None and (value := arguments.value()) is None:
            raise UserError(f"[arguments] {name}: expected {OPTIONS[name][0]} behind it")
        request.options[name] = value or ""
        if name == "--stop":
            request.stops.append(value or "")


def parse(words: Sequence[str]) -> Request:
    """Commands and options out of the words, the rest as overrides on the config; raises UserError."""
    request, rest = Request(), list(words)
    if rest[:1] == ["help"]:
        rest = [*rest[1:], "--help"]
    first = ""
    if rest and rest[0] in (*COMMANDS, *ALIASES, *detect.COMMANDS):
        first = rest.pop(0)
        request.command = first if first in detect.COMMANDS else _command(first)
    _read_options(request, rest, _mode(words) or request.command)
    if request.options.keys() & {"--help", "--version"}:
        asked = words[1] if words[:1] == ["help"] and len(words) > 1 else words[0]
        if not first and _is_name(asked):
            _command(asked)  # UserError: it is none
        if "--mode" in request.options:
            request.command = _command(request.options["--mode"])
        return request  # of all else, help alone looks at the config
    take_run(request, _mode(words) or request.command)
    if not load_original(request, first, words):
        if "--mode" in request.options:
            request.command = _command(request.options["--mode"])
        check_takers(request)
        refuse_bare(request, first)
        _load(request, first)
    return request


def _of_run(request: Request) -> str | None:
    """The saved config of the run that --workdir names, for `train` without --config; None where there is none."""
    if request.command != "train" or "--workdir" not in request.options:
        return None
    folder = request.folder
    if not folder.holds_run:
        return None
    request.options["--config"] = str(folder.config_file)
    return request.options["--config"]


def _load(request: Request, first: str) -> None:
    """Read the config that a request names; UserError, with the whole command for the names of other programs."""
    try:
        _load_config(request, first)
    except UserError as error:
        if (better := other_names(request, first)) is not None:
            raise better from error
        raise


def _load_config(request: Request, first: str) -> None:
    file = request.options.get("--config") or _of_run(request)
    if request.command in READING:
        require_run(request, first)
    if request.command in READING or (request.command == "data" and file is None):
        return  # the run's own config counts
    if file is None:
        split_words(request.words, Config(), known_words())  # names the argument that is wrong, if one is
        raise missing_config(request, first)
    if of_run := _is_of_run(request, file):
        run_copies(request.folder, request.words)
    if request.command != "train" or request.options.keys() & {"--plan", "--params", "--explain"}:
        request.config = config_of(file, request.words, of_run=of_run)
        return
    known = resumed(file, request.words, request.folder if "--workdir" in request.options else None)
    if known is not None:
        request.config, request.source = known
        check_config(request.config)
        return
    with recorded(request.words) as request.source:
        request.config = config_of(file, request.words, of_run=of_run)


def _is_of_run(request: Request, file: str) -> bool:
    """Whether a config file is the one of the run that --workdir names."""
    return "--workdir" in request.options and request.folder.has_config(file)


def config_of(file: str, words: Sequence[str], *, of_run: bool = False) -> Config:
    """The checked config of a file with overrides. of_run: it is the config of a run that the command names."""
    config = read_config(file)
    overrides = split_words(words, config, known_words())
    config = apply_overrides(config, overrides)
    if file.endswith(".json") and not of_run:
        require_named_reader(config, words)
    check_config(config, typed_names(overrides))
    return config
