"""Answer names of other programs in the arguments of tune with the whole command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.argv import is_tune
from mudd_core.cli.request import Request
from mudd_core.cli.retyping import retyped
from mudd_core.cli.tune.fields import require_fields
from mudd_core.config.arguments import Argument, Arguments

_SWITCHES = ("--plan", "--verbose", "--help", "-h")
# Options that a command needs, each with an example.
_NEEDED = {"--base": "FOLDER", "--data": "chat.jsonl", "--workdir": "runs/mine"}


def require_own_names(words: Sequence[str], own: Collection[str]) -> None:
    """Raise UserError, with the whole command, for names of other programs. own: the options of the command."""
    request, bare = _request(words, own)
    again = retyped(request)
    if again.problem:
        raise UserError(f"[tune] {again.problem}")
    if again.bare and not again.whole:
        raise UserError(
            f"[tune] expected options, name=value, or an existing folder and file, got '{again.bare}'; "
            f"{shlex.join([*typed_program(), 'tune', '--help'])} shows the options"
        )
    if not (bare or again.told) or not again.whole or "--help" in again.options:
        return
    options = {name: again.options.get(name, example) for name, example in _NEEDED.items()} | again.options
    require_fields(again.words, options["--base"])
    shown = [f"{name}={value}" if value else name for name, value in options.items()]
    told = [f"'{word}' is {name} here" for word, name in bare.items()]
    line = shlex.join([*typed_program(), "tune", *shown, *again.words])
    raise UserError(f"[tune] {', '.join([*told, *again.told])}; type: {line}")


def _request(words: Sequence[str], own: Collection[str]) -> tuple[Request, dict[str, str]]:
    """Return the request, and the names of arguments without an option: a folder is the base, a file the data."""
    request, bare, arguments = Request("tune"), dict[str, str](), Arguments(words)
    for item in arguments:
        if item.option in own:
            value = item.value
            if value is None and item.option not in _SWITCHES:
                value = arguments.value()
            request.options[item.option] = value or ""
        elif item.raw in words[:1] and is_tune(item.raw):
            bare[item.raw] = "the command tune"
        elif (option := _place(item)) and option not in request.options:
            request.options[option], bare[item.raw] = item.raw, option
        else:
            request.words += arguments.typed(item) if item.switch else [item.raw]
    return request, bare


def _place(item: Argument) -> str:
    """Return the option for an existing folder or file without one; empty for other arguments."""
    if item.mark or item.value is not None:
        return ""
    return "--base" if Path(item.raw).is_dir() else "--data" if Path(item.raw).is_file() else ""
