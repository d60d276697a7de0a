"""Messages of a command that a Python function runs: options become arguments, `--step=3` becomes step=3."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mudd_core.base.errors import FormatError, SaveError, UserError

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:=([^\s;,)]+))?")
_HELP = re.compile(r"; [^;]* --help shows the options$")


def in_python(text: str, names: Mapping[str, str]) -> str:
    """Return a message with options as arguments.

    names: the argument of an option, or of a place such as [export] RUN, if it has another name.
    """

    def argument(found: re.Match[str]) -> str:
        option, value = found[1], found[2]
        name = names.get(f"--{option}", option.replace("-", "_"))
        if value is None or "=" in name:
            return name
        return f"{name}={value}" if re.fullmatch(r"[\d.]+", value) else f'{name}="{value}"'

    for place, own in names.items():
        if place.startswith("[") and text.startswith(place):
            text = own + text.removeprefix(place)
            break
    pieces = _HELP.sub("", text).split("`")  # commands of other programs are in backticks
    pieces[::2] = [_OPTION.sub(argument, piece) for piece in pieces[::2]]
    return "`".join(pieces)


@contextmanager
def python_errors(names: Mapping[str, str]) -> Iterator[None]:
    """Name the arguments of a Python function in the errors of the body. names: as for in_python."""
    try:
        yield
    except (UserError, FormatError, SaveError) as error:
        error.args = (in_python(str(error), names), *error.args[1:])
        raise
