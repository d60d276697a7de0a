"""Read the Request of a command line: its config with overrides, or the run that the command line names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import other_folder, require_no_gguf, require_no_other
from mudd_core.base.storage import is_url
from mudd_core.cli.argv import Invocation, require_takers
from mudd_core.cli.corrected import (
    is_text,
    line_of,
    missing_config,
    options_of,
    other_names,
    refuse_bare,
    require_run,
    unknown_command,
)
from mudd_core.cli.names import ALIASES, COMMANDS, KNOWN_WORDS, OPTIONS, READING
from mudd_core.cli.originals import load_original
from mudd_core.cli.request import Request
from mudd_core.config import Config, apply_overrides, check_config, read_config, split_words, typed_names
from mudd_core.config.arguments import Argument, bare
from mudd_core.config.check import require_own_steps
from mudd_core.config.config_files import is_config
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.programs.program import DEVICES, CommandLine, is_our_own, is_yml
from mudd_core.run.store.config_source import recorded, resumed
from mudd_core.run.store.own_code import require_named_reader, run_copies
from mudd_core.run.store.run_folder import CHECKPOINTS
from mudd_core.run.store.saved_run import is_run, run_and_step

_COMMAND = re.compile("[A-Za-z][A-Za-z_-]*")


def request_of(invocation: Invocation) -> Request:
    """Read the config of a command, or find the run that it reads; raise UserError if that fails."""
    first, words, given = invocation.first, invocation.words, invocation.given
    request = Request(invocation.named, words=[*given.words], options={**given.options}, stops=[*given.stops])
    if request.options.keys() & {"--help", "--version"}:
        from mudd_core.programs.detect import program_of_script

        asked = words[1] if words[:1] == ("help",) and len(words) > 1 else words[0]
        if not first and is_config(asked):
            request.words.remove(asked)
            request.options.setdefault("--config", asked)
        elif not first and _is_name(asked) and program_of_script(asked) is None:
            _command(asked)  # raises UserError, because it is not a command
        if "--mode" in request.options:
            request.command = _command(request.options["--mode"])
        return request  # otherwise the config is used only for help
    _take_run(request, invocation.mode or request.command)
    if not _is_original(request, first, words):
        if "--mode" in request.options:
            request.command = _command(request.options["--mode"])
        require_takers(request.command, request.options)
        if any(bare(request.words)):
            refuse_bare(request, first)
            if not first and _COMMAND.fullmatch(words[0]):
                raise unknown_command(words[0])
        _load(request, first)
    return request


def _is_original(request: Request, first: str, words: Sequence[str]) -> bool:
    """Resolve the arguments if they are in the grammar of an original program; return False for mudd_core's grammar."""
    asked = _asked_of(request, first)
    if is_our_own(asked) and DEVICES not in asked.options:
        return False
    return load_original(asked, request, words)


def _asked_of(request: Request, first: str) -> CommandLine:
    """Return the arguments in the form that the grammars read. first: the command at the start of the line."""
    words, config = list(request.words), request.options.get("--config", "")
    own, notes = "", list[str]()
    if words and words[0].endswith(".py"):
        from mudd_core.programs.detect import drop_program

        own, notes = drop_program(words)
    if not config and words and is_yml(words[0]):
        config = words.pop(0)
    mode = request.options.get("--mode", "")
    command = ALIASES.get(mode, mode) if mode in (*COMMANDS, *ALIASES) else ALIASES.get(first, first) or own
    options = {name: value for name, value in request.options.items() if name != "--config"}
    return CommandLine(command, config, tuple(words), options, os.environ, tuple(notes))


def _command(name: str) -> str:
    command = ALIASES.get(name, name)
    if command not in COMMANDS:
        raise unknown_command(name)
    return command


def _is_name(word: str) -> bool:
    """Return True if an argument may be meant as a command: it is not an option, an assignment or a yml file."""
    return word != "help" and word[:1].isalpha() and "=" not in word and not is_yml(word)


def _take_run(request: Request, command: str) -> None:
    """Use a bare run folder as --workdir, and the folder of a checkpoint as its step.

    Raise UserError for training in the folder of a checkpoint, and for folders of Hugging Face and PEFT.
    """
    for item in bare(request.words):
        _require_run(Path(item.raw), "[arguments]", command)
    _require_run(Path(request.options.get("--workdir", "")), "[arguments] --workdir:", command)
    require_no_other(Path(request.options.get("--config", "")), "[arguments] --config:", "a config")
    if command in (*READING, "data") and "--workdir" not in request.options:
        for item in bare(request.words):
            if is_run(item.raw) if command == "data" else _could_be_run(item):
                request.words.remove(item.raw)
                request.options["--workdir"] = item.raw
                break
    _take_config(request, command)
    typed = request.options.get("--workdir", "")
    folder, step = run_and_step(typed) if CHECKPOINTS in Path(typed).parts else (typed, None)
    if folder == typed:
        return
    if command == "train":
        line = line_of(request, "", [*options_of(request, {"--workdir": folder}), *request.words])
        raise UserError(
            f"[arguments] --workdir: expected the folder of a run, got '{typed}' in it; type: {line}"
        )
    request.options["--workdir"] = folder
    if step is not None and command in OPTIONS["--step"][2]:
        request.options.setdefault("--step", str(step))


def _require_run(path: Path, place: str, command: str) -> None:
    """Raise UserError for a folder of Hugging Face or PEFT, or a GGUF file; chat reads the models of the first."""
    require_no_gguf(path, place, "a run or a folder of Hugging Face" if command == "chat" else "a run")
    if command != "chat" or ((found := other_folder(path)) is not None and found.base is not None):
        require_no_other(path, place)


def _take_config(request: Request, command: str) -> None:
    """Use a run folder in --config as --workdir; raise UserError for training."""
    config = request.options.get("--config", "")
    if not config or "--workdir" in request.options or is_url(config) or not Path(config).is_dir():
        return
    if not is_run(config):
        return
    if command not in (*READING, "data"):
        del request.options["--config"]
        line = line_of(
            request, "", [*options_of(request, {"--workdir": run_and_step(config)[0]}), *request.words]
        )
        raise UserError(f"[arguments] --config: expected a config, got the run '{config}'; type: {line}")
    request.options["--workdir"] = request.options.pop("--config")


def _could_be_run(item: Argument) -> bool:
    """Return True if an argument may be a run folder: it is one, or it is neither a field nor a config."""
    if is_url(item.raw) or Path(item.raw).is_dir():
        return True
    if is_text(item.raw):
        return False
    field = field_path(item.name, fields_of_all()) is not None
    config = is_yml(item.raw) or is_config(item.raw)
    return item.mark == "" and not (field or config or item.raw in (*COMMANDS, *ALIASES))


def _of_run(request: Request) -> str | None:
    """Return the saved config of the run in --workdir, for `train` without --config; None if there is none."""
    if request.command != "train" or "--workdir" not in request.options:
        return None
    folder = request.folder
    if not folder.holds_run:
        return None
    request.options["--config"] = str(folder.config_file)
    return request.options["--config"]


def _load(request: Request, first: str) -> None:
    """Read the config of a request. Raise UserError, with the whole command, for names of other programs."""
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
        return  # the config of the run is used
    if file is None:
        # raises UserError for the wrong argument, if there is one
        split_words(request.words, Config(), KNOWN_WORDS)
        raise missing_config(request, first)
    if of_run := _is_of_run(request, file):
        run_copies(request.folder, request.words)
    if request.command != "train" or request.options.keys() & {"--plan", "--params", "--explain"}:
        request.config = config_of(file, request.words, of_run=of_run)
        return
    known = resumed(file, request.words, request.folder if "--workdir" in request.options else None)
    if known is not None:
        request.config, request.source = known
        overrides = split_words(request.words, request.config, KNOWN_WORDS)
        require_own_steps(request.config, [item.path for item in overrides])
        check_config(request.config)
        return
    with recorded(request.words) as request.source:
        request.config = config_of(file, request.words, of_run=of_run)


def _is_of_run(request: Request, file: str) -> bool:
    """Return True if a config file is the saved config of the run in --workdir."""
    return "--workdir" in request.options and request.folder.has_config(file)


def config_of(file: str, words: Sequence[str], *, of_run: bool = False) -> Config:
    """Return the checked config of a file with overrides. of_run: the file is the config of the named run."""
    config = read_config(file)
    overrides = split_words(words, config, KNOWN_WORDS)
    config = apply_overrides(config, overrides)
    if file.endswith(".json") and not of_run:
        require_named_reader(config, words)
    require_own_steps(config, [item.path for item in overrides])
    check_config(config, typed_names(overrides))
    return config
