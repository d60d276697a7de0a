"""Errors for mistyped commands whose meaning is clear, each with the whole corrected command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.main_help import group_lines
from mudd_core.cli.names import ALIASES, COMMANDS, PROMPTS, READING, TOOLS
from mudd_core.cli.request import MISSING_CONFIG, Request
from mudd_core.cli.retyping import Retyped, retyped
from mudd_core.config import apply_overrides, check_config, find_config, read_config, split_words
from mudd_core.config.arguments import argument, bare
from mudd_core.config.config_files import family_configs, is_config
from mudd_core.config.foreign import COMMANDS as FOREIGN
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.config.suggest import nearest
from mudd_core.run.store.saved_run import is_run, newest_run

_EXAMPLE = "small.py"
_OF_CONFIG = ("train", "data", "--plan")  # commands that need a config
_NEITHER = "'{}' is neither a command nor name=value"


def refuse_bare(request: Request, first: str) -> None:
    """Raise UserError for an argument that is neither an option nor name=value, if its meaning is known.

    first: the command at the start of the line.
    """
    for item in bare(request.words):
        word = item.raw
        if word in (*COMMANDS, *ALIASES):
            if not first:
                rest = [other for other in request.words if other != word]
                line = line_of(request, word, [*options_of(request), *rest])
                raise UserError(
                    f"[arguments] '{word}' is a command and must be the first argument; type: {line}"
                )
            return
        if (ours := FOREIGN.get(word)) is not None and not first:
            line = _asline_of(request, ours, word)
            groups = [] if ours.startswith("--") else group_lines()
            raise UserError("\n".join([f"[arguments] '{word}' is no command; type: {line}", *groups]))
        if (sampled := _with_prompt(request, first)) is not None:
            raise UserError(f"[arguments] {_NEITHER.format(word)}; type: {sampled}")
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
            find_config(word)  # raises UserError, because there is no such file
        return


def _with_prompt(request: Request, first: str) -> str | None:
    """Return `sample RUN --prompt=TEXT` for a run and bare arguments of a prompt; None for other arguments.

    Without a command, the first bare argument is the run.
    """
    items = list(bare(request.words))
    words, run = [item.raw for item in items], request.options.get("--workdir", "")
    if any(item.mark for item in items):
        return None
    if not first and "--config" in request.options and any(map(is_text, words)):
        request = replace(request, command="sample")
    elif first in ("", "sample") and not run and len(words) > 1 and "--config" not in request.options:
        run = words.pop(0)
        known = [name for name in (run, f"runs/{run}") if is_run(name)]
        if not known and not any(map(is_text, words)):
            return None
        request = replace(request, words=[one for one in request.words if one != run], command="sample")
        run = known[0] if known else ""
    elif request.command != "sample":
        return None
    if any(is_run(word) or is_config(word) for word in words) or request.options.keys() & set(PROMPTS):
        return None
    if any(field_path(argument(word).name, fields_of_all()) for word in words):
        return None
    if run and not is_run(run) and is_run(f"runs/{run}"):
        run = f"runs/{run}"
    rest = retyped(replace(request, words=[word for word in request.words if word not in words]))
    if not rest.whole:
        return None
    options = {**rest.options, "--prompt": " ".join(words), **({"--workdir": run} if run else {})}
    if not run and "--config" not in options:
        options |= {"--config": _EXAMPLE} if (newest := newest_run()) is None else {"--workdir": str(newest)}
    return line_of(request, first or "sample", [*options_of(request, options), *rest.words])


def is_text(word: str) -> bool:
    """Return True for an argument with a space, which is no name."""
    return any(map(str.isspace, word))


def _asline_of(request: Request, ours: str, word: str) -> str:
    """Return the whole command, with an argument replaced by a command of launch.py."""
    rest = [other for other in request.words if other != word]
    if ours == "--version":
        rest = []
    example = {"--config": _EXAMPLE} if ours in _OF_CONFIG and "--config" not in request.options else {}
    return shlex.join([*typed_program(), *ours.split(), *options_of(request, example), *rest])


def unknown_command(name: str) -> UserError:
    """Return the error for a command that does not exist: the nearest name, and all commands in groups."""
    hint = nearest(name, [*COMMANDS, *ALIASES, *TOOLS]) or "; the commands are:"
    return UserError("\n".join([f"[arguments] unknown command '{name}'{hint}", *group_lines()]))


def other_names(request: Request, first: str = "") -> UserError | None:
    """Return the error for names or values of other programs, with the whole translated command.

    Return None if no argument has such a name, or if its value has no equivalent.
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
    """Return the whole command that has the retyped arguments."""
    options = options_of(request, {**again.options, **_example(request, again)})
    return line_of(request, first or again.command, [*options, *again.words])


def _example(request: Request, again: Retyped) -> dict[str, str]:
    """Return an example config, if the arguments have none and --workdir names no run to read or resume."""
    folder = again.options.get("--workdir")
    is_read = folder is not None and (request.command in READING or is_url(folder) or is_run(folder))
    return {} if is_read or "--config" in again.options else {"--config": _EXAMPLE}


def missing_config(request: Request, first: str) -> UserError:
    """Return the error for a command without a required config."""
    line = line_of(request, first, [*options_of(request, {"--config": _EXAMPLE}), *request.words])
    return UserError(f"{MISSING_CONFIG}; type: {line}")


def require_run(request: Request, first: str) -> None:
    """Raise UserError if a command that reads a run does not name one."""
    if request.options.keys() & {"--config", "--workdir"}:
        return
    words = [item.raw for item in bare(request.words)]
    if words and (sampled := _with_prompt(request, first)) is not None:
        raise UserError(f"[arguments] {_NEITHER.format(words[0])}; type: {sampled}")
    named = f"--config={_EXAMPLE}" if (newest := newest_run()) is None else str(newest)
    line = line_of(request, first, [named, *options_of(request), *request.words])
    raise UserError(f"[arguments] {request.command} reads a run, and none is named; type: {line}")


def options_of(request: Request, changed: dict[str, str] | None = None) -> list[str]:
    """Return the options as the user wrote them, config first. changed: values that override the request's."""
    options = {**request.options, **(changed or {})}
    names = sorted(options, key=lambda name: name != "--config")
    stops = [f"--stop={stop}" for stop in request.stops]
    once = [name for name in names if name not in ("--mode", "--stop")]
    return [*(f"{name}={options[name]}" if options[name] else name for name in once), *stops]


def line_of(request: Request, first: str, words: Sequence[str]) -> str:
    """Return the whole command with these arguments. first: the command at the start of the line."""
    command = first or ("" if request.command == "train" else request.command)
    return shlex.join([*typed_program(), *([command] if command else []), *words])
