"""Arguments of a tool (a command with options of its own): one screen of help, and errors like all others."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import program
from mudd_core.config import FAMILIES, Config
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.config.overrides import field_path
from mudd_core.config.suggest import nearest_option

WIDTH = 96  # columns of all help texts
_LARGEST = 2**62  # of numbers: the core counts in 64 bits
_SHOWN = 60  # characters of a refused value

FIELDS = "Other arguments set fields of the config, like {example}; `{program} --help=all` lists them."


def folded(text: str, width: int = WIDTH) -> str:
    """Text with its paragraphs filled anew; those with an indented line stay as they are."""
    paragraphs = textwrap.dedent(text).strip().split("\n\n")
    return "\n\n".join(
        part if any(line.startswith(" ") for line in part.splitlines()) else textwrap.fill(part, width)
        for part in paragraphs
    )


def whole_number(low: int | None = None, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number, 1e3 and 1_000 included, within these bounds."""
    wanted = f"a whole number{_bounds(low, high)}"

    def read(text: str) -> int:
        value = _value(text, wanted)
        if value != int(value) or (low is not None and value < low) or (high is not None and value > high):
            raise _refusal(wanted, text)
        return int(value)

    return read


def positive_number(text: str) -> float:
    """An argparse type: a finite number above 0."""
    value = _value(text, "a number above 0")
    if value <= 0:
        raise _refusal("a number above 0", text)
    return float(value)


def fraction(text: str) -> float:
    """An argparse type: a number from 0 to below 1."""
    value = _value(text, "a number from 0 to below 1")
    if not 0 <= value < 1:
        raise _refusal("a number from 0 to below 1", text)
    return float(value)


def _bounds(low: int | None, high: int | None) -> str:
    if low is None:
        return "" if high is None else f" of at most {high}"
    return f" of at least {low}" if high is None else f" from {low} to {high}"


def _value(text: str, wanted: str) -> int | float:
    try:
        value: int | float = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            raise _refusal(wanted, text) from None
    if not -_LARGEST <= value <= _LARGEST:  # also NaN
        raise _refusal(wanted, text)
    return value


def _refusal(wanted: str, text: str) -> argparse.ArgumentTypeError:
    given = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return argparse.ArgumentTypeError(f"expected {wanted}, got '{given}'")


class ToolArguments(argparse.ArgumentParser):
    """A parser whose mistakes are UserErrors, with a suggestion for a misspelt option."""

    def __init__(self, tool: str, text: str, *, fields: str = "") -> None:
        """tool: as on the command line. text: what it does. fields: an override as an example, if it takes some."""
        called = " ".join(program())
        note = FIELDS.format(example=fields, program=called) if fields else ""
        super().__init__(
            prog=f"{called} {tool}",
            description=folded(text.replace("python3 launch.py", called)),
            epilog=folded(note),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, max_help_position=22, width=WIDTH
            ),
            allow_abbrev=False,
        )
        self._tool, self._takes_fields = tool, bool(fields)

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """(options, overrides of config fields); UserError for what is neither."""
        options, rest = self.parse_known_args(list(words))
        infos, own = _fields_of_every_family(), self._own()
        for word in rest:
            name = word.partition("=")[0].removeprefix("--").removeprefix("config.")
            if word.startswith("--") and field_path(name, infos) is None:
                hint = nearest_option("--" + name, infos if self._takes_fields else [], own)
                self.error(f"unknown option '--{name}'{hint}")
        return options, rest

    def options(self, words: Sequence[str]) -> argparse.Namespace:
        """The options; UserError for any other argument."""
        options, rest = self.parse_known_args(list(words))
        if rest:
            hint = nearest_option(rest[0].partition("=")[0], [], self._own())
            self.error(f"unknown option '{rest[0]}'{hint}")
        return options

    def _own(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings if name[:2] == "--"]

    def error(self, message: str) -> NoReturn:
        """UserError with the message and where help is."""
        raise UserError(
            f"[{self._tool}] {message.removeprefix('argument ')}\n{self.prog} --help shows the options"
        )


def _fields_of_every_family() -> list[FieldInfo]:
    return [info for family in FAMILIES.values() for info in walk(Config(model=family()))]
