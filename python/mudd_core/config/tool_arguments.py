"""Arguments of a tool (a command with options of its own): one screen of help, and errors like all others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn, TypeVar

from mudd_core.base.errors import UserError
from mudd_core.base.help_text import WIDTH, folded
from mudd_core.base.surroundings import program
from mudd_core.config.arguments import argument
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.config.suggest import nearest_option
from mudd_core.config.values import KINDS, LARGEST_COUNT, mismatch, number, whole

Number = TypeVar("Number", int, float)

FIELDS = "Other arguments set fields of the config, like {example}; `{program} --help=all` lists them."


def whole_number(low: int | None = None, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number, 1e3 and 1_000 included, within these bounds."""

    def read(text: str) -> int:
        found = whole("", text, low, high)
        if abs(found) > LARGEST_COUNT:
            raise mismatch("", f"{KINDS[int]} of at most {LARGEST_COUNT}", text)
        return found

    return _argument(read)


def _argument(read: Callable[[str], Number]) -> Callable[[str], Number]:
    """The reader as an argparse type, whose error gets the option's name from argparse."""

    def typed(text: str) -> Number:
        try:
            return read(text)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


positive_number = _argument(partial(number, "", above=0))
fraction = _argument(partial(number, "", low=0, below=1))


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
        infos, own = fields_of_all(), self._own()
        for item in map(argument, rest):
            if item.mark == "--" and field_path(item.name, infos) is None:
                hint = nearest_option("--" + item.name, infos if self._takes_fields else [], own)
                self.error(f"unknown option '--{item.name}'{hint}")
        return options, rest

    def options(self, words: Sequence[str]) -> argparse.Namespace:
        """The options; UserError for any other argument."""
        options, rest = self.parse_known_args(list(words))
        if rest:
            hint = nearest_option(argument(rest[0]).option, [], self._own())
            self.error(f"unknown option '{rest[0]}'{hint}")
        return options

    def _own(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings if name[:2] == "--"]

    def error(self, message: str) -> NoReturn:
        """UserError with the message and where help is."""
        raise UserError(
            f"[{self._tool}] {message.removeprefix('argument ')}\n{self.prog} --help shows the options"
        )
