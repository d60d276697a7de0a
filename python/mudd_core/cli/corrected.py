"""Mistakes of typing that have one meaning: the run of a bare folder, and the whole command for the others."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.names import ALIASES, COMMANDS, OPTIONS, READING
from mudd_core.cli.request import MISSING_CONFIG, Request
from mudd_core.config import find_config
from mudd_core.config.arguments import Argument, Arguments
from mudd_core.config.load import family_configs
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.grammars.detect import is_yml
from mudd_core.run.store.run_folder import CHECKPOINTS, RunFolder
from mudd_core.run.store.saved_run import newest_run, run_and_step

_EXAMPLE = "small.py"


def take_run(request: Request, command: str) -> None:
    """Read the bare folder of a command that reads a run as its --workdir, and the folder of a checkpoint as its step.

    UserError for a training in the folder of a checkpoint.
    """
    if command in (*READING, "data") and "--workdir" not in request.options:
        for item in _bare(request.words):
            if _is_run(item.raw) if command == "data" else _could_be_run(item):
                request.words.remove(item.raw)
                request.options["--workdir"] = item.raw
                break
    _take_config(request, command)
    typed = request.options.get("--workdir", "")
    folder, step = run_and_step(typed) if CHECKPOINTS in Path(typed).parts else (typed, None)
    if folder == typed:
        return
    if command == "train":
        line = _command(request, "", [*_options(request, {"--workdir": folder}), *request.words])
        raise UserError(
            f"[arguments] --workdir: expected the folder of a run, got '{typed}' in it; type: {line}"
        )
    request.options["--workdir"] = folder
    if step is not None and command in OPTIONS["--step"][2]:
        request.options.setdefault("--step", str(step))


def file_after(arguments: Arguments) -> str | None:
    """Take the next argument as the file of an option that needs none; the folder of a run is no such file."""
    after = arguments.next()
    return None if after is None or _is_run(after.raw) else arguments.plain_value()


def _take_config(request: Request, command: str) -> None:
    """Read the folder of a run that is given as --config as its --workdir; UserError for a training."""
    config = request.options.get("--config", "")
    if not config or "--workdir" in request.options or is_url(config) or not Path(config).is_dir():
        return
    if not _is_run(config):
        return
    if command not in (*READING, "data"):
        del request.options["--config"]
        line = _command(
            request, "", [*_options(request, {"--workdir": run_and_step(config)[0]}), *request.words]
        )
        raise UserError(f"[arguments] --config: expected a config, got the run '{config}'; type: {line}")
    request.options["--workdir"] = request.options.pop("--config")


def refuse_bare(request: Request, first: str) -> None:
    """Raise UserError for an argument that is neither an option nor name=value, where its meaning is known.

    first: the command that is typed in front.
    """
    for item in _bare(request.words):
        word = item.raw
        if word in (*COMMANDS, *ALIASES):
            if not first:
                rest = [other for other in request.words if other != word]
                line = _command(request, word, [*_options(request), *rest])
                raise UserError(f"[arguments] '{word}' is a command: it is the first argument; type: {line}")
            return
        told = ""
        if (words := _retyped(request)) is not None:
            told = f"; type: {_command(request, first, words)}"
        if configs := family_configs(word):
            told += f"; configs of {word}: {', '.join(configs)}"
        if not told and request.command in READING and "--workdir" in request.options:
            run = request.options["--workdir"]
            told = f"; {request.command} reads one run, {run}"
            if request.command == "report":
                told += f"; type: {shlex.join([*typed_program(), 'compare', run, word])}"
        if told:
            raise UserError(f"[arguments] '{word}' is neither a command nor name=value{told}")
        return


def missing_config(request: Request, first: str) -> UserError:
    """The error of a command that needs a config and has none."""
    line = _command(request, first, [*_options(request, {"--config": _EXAMPLE}), *request.words])
    return UserError(f"{MISSING_CONFIG}; type: {line}")


def require_run(request: Request, first: str) -> None:
    """Raise UserError for a command that reads a run where none is named."""
    if request.options.keys() & {"--config", "--workdir"}:
        return
    named = f"--config={_EXAMPLE}" if (newest := newest_run()) is None else str(newest)
    line = _command(request, first, [named, *_options(request), *request.words])
    raise UserError(f"[arguments] {request.command} reads a run, and none is named; type: {line}")


def _bare(words: Sequence[str]) -> Iterator[Argument]:
    """The arguments that are neither options, nor values of them, nor assignments."""
    arguments = Arguments(words)
    for item in arguments:
        if item.switch:
            arguments.plain_value()
        elif item.value is None and item.mark in ("", "-"):
            yield item


def _retyped(request: Request) -> list[str] | None:
    """Options and arguments with every bare one in its place; None where one has no place."""
    infos, options, words = fields_of_all(), dict(request.options), list[str]()
    arguments = Arguments(request.words)
    for item in arguments:
        if item.switch or item.value is not None or item.mark not in ("", "-"):
            words += arguments.typed(item) if item.switch else [item.raw]
        elif item.mark == "" and "--config" not in options and _is_config(item.raw):
            options["--config"] = item.raw
        elif item.mark == "" and "--workdir" not in options and _is_run(item.raw):
            options["--workdir"] = run_and_step(item.raw)[0]
        else:
            path = field_path(item.name, infos)
            value = None if path is None else arguments.plain_value()
            if value is None:
                return None
            words.append(f"{path}={value}")
    if not options.keys() & {"--config", "--workdir"}:
        options = {"--config": _EXAMPLE, **options}
    return [*_options(request, options), *words]


def _options(request: Request, changed: dict[str, str] | None = None) -> list[str]:
    """The options as typed, the config first. changed: values that go before those of the request."""
    options = {**request.options, **(changed or {})}
    names = sorted(options, key=lambda name: name != "--config")
    stops = [f"--stop={stop}" for stop in request.stops]
    once = [name for name in names if name not in ("--mode", "--stop")]
    return [*(f"{name}={options[name]}" if options[name] else name for name in once), *stops]


def _command(request: Request, first: str, words: Sequence[str]) -> str:
    """The whole command of these arguments. first: the command that is typed in front."""
    command = first or ("" if request.command == "train" else request.command)
    return shlex.join([*typed_program(), *([command] if command else []), *words])


def _is_config(word: str) -> bool:
    """Whether an argument names a config file."""
    try:
        return find_config(word).suffix in (".py", ".json")
    except UserError:
        return False


def _is_run(word: str) -> bool:
    """Whether an argument is the folder of a run, or of one of its checkpoints."""
    return not is_url(word) and RunFolder(Path(run_and_step(word)[0])).holds_run


def _could_be_run(item: Argument) -> bool:
    """Whether an argument may be meant as the folder of a run: it is one, or neither a field nor a config."""
    if is_url(item.raw) or Path(item.raw).is_dir():
        return True
    field = field_path(item.name, fields_of_all()) is not None
    config = is_yml(item.raw) or _is_config(item.raw)
    return item.mark == "" and not (field or config or item.raw in (*COMMANDS, *ALIASES))
