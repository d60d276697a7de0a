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
from mudd_core.cli.retyping import Retyped, is_config, is_run, retyped
from mudd_core.config import apply_overrides, check_config, find_config, read_config, split_words
from mudd_core.config.arguments import Argument, Arguments, argument
from mudd_core.config.keys.foreign import COMMANDS as FOREIGN
from mudd_core.config.load import family_configs
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.grammars.detect import is_yml
from mudd_core.run.store.run_folder import CHECKPOINTS
from mudd_core.run.store.saved_run import newest_run, run_and_step

_EXAMPLE = "small.py"
_NEITHER = "'{}' is neither a command nor name=value"


def take_run(request: Request, command: str) -> None:
    """Read the bare folder of a command that reads a run as its --workdir, and the folder of a checkpoint as its step.

    UserError for a training in the folder of a checkpoint.
    """
    if command in (*READING, "data") and "--workdir" not in request.options:
        for item in _bare(request.words):
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
    return None if after is None or is_run(after.raw) else arguments.plain_value()


def _take_config(request: Request, command: str) -> None:
    """Read the folder of a run that is given as --config as its --workdir; UserError for a training."""
    config = request.options.get("--config", "")
    if not config or "--workdir" in request.options or is_url(config) or not Path(config).is_dir():
        return
    if not is_run(config):
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
        if (ours := FOREIGN.get(word)) is not None and not first:
            raise UserError(f"[arguments] '{word}' is no command; type: {_as_command(request, ours, word)}")
        again, told = retyped(request), ""
        if again.whole:
            told = f"; type: {_line(request, first, again)}"
        if configs := family_configs(word):
            told += f"; configs of {word}: {', '.join(configs)}"
        if not told and request.command in READING and "--workdir" in request.options:
            run = request.options["--workdir"]
            told = f"; {request.command} reads one run, {run}"
            if request.command == "report":
                told += f"; type: {shlex.join([*typed_program(), 'compare', run, word])}"
        if told:
            own = [] if any(one.startswith(f"'{word}' is") for one in again.told) else [_NEITHER.format(word)]
            raise UserError(f"[arguments] {', '.join([*own, *again.told])}{told}")
        if argument(word).name.endswith((".py", ".json")):
            find_config(word)  # UserError: there is no such file
        return


def _as_command(request: Request, ours: str, word: str) -> str:
    """The whole command with a command of ours in the place of a word."""
    rest = [other for other in request.words if other != word]
    if ours == "--version":
        rest = []
    return shlex.join([*typed_program(), *ours.split(), *_options(request), *rest])


def other_names(request: Request, first: str = "") -> UserError | None:
    """The error of a command with names or values of other programs, with the whole command in ours.

    None where no argument has such a name, or where its value has no counterpart.
    """
    again = retyped(request)
    if again.problem and not again.bare:
        return UserError(f"[arguments] {again.problem}")
    if not again.told or not again.whole or again.bare:
        return None
    try:
        name = {**again.options, **_example(request, again)}.get("--config")
        if name is not None:
            config = read_config(name)
            check_config(apply_overrides(config, split_words(again.words, config)))
    except UserError:
        return None
    return UserError(f"[arguments] {', '.join(again.told)}; type: {_line(request, first, again)}")


def _line(request: Request, first: str, again: Retyped) -> str:
    """The whole command of the arguments that were typed again."""
    options = _options(request, {**again.options, **_example(request, again)})
    return _command(request, first or again.command, [*options, *again.words])


def _example(request: Request, again: Retyped) -> dict[str, str]:
    """The config of an example, where none is typed and --workdir names no run to read or resume."""
    folder = again.options.get("--workdir")
    is_read = folder is not None and (request.command in READING or is_url(folder) or is_run(folder))
    return {} if is_read or "--config" in again.options else {"--config": _EXAMPLE}


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


def _could_be_run(item: Argument) -> bool:
    """Whether an argument may be meant as the folder of a run: it is one, or neither a field nor a config."""
    if is_url(item.raw) or Path(item.raw).is_dir():
        return True
    field = field_path(item.name, fields_of_all()) is not None
    config = is_yml(item.raw) or is_config(item.raw)
    return item.mark == "" and not (field or config or item.raw in (*COMMANDS, *ALIASES))
