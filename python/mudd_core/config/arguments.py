"""Parse the arguments of a command line, once for commands, ranks and grammars."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_MARK = re.compile(r"--?|\+\+?|~|")


@dataclass(frozen=True)
class Argument:
    """A parsed argument.

    mark: `--`, `-`, `++`, `+`, `~` or empty. value: the part after the equals sign; None without one.
    """

    raw: str
    mark: str
    key: str  # the part before the equals sign, without the mark
    value: str | None

    @property
    def option(self) -> str:
        """The part before the equals sign, exactly as the user wrote it: `--config.train.steps`."""
        return self.mark + self.key

    @property
    def name(self) -> str:
        """Name of the field that the argument may set: `train.steps` for `--config.train.steps`."""
        return self.key.removeprefix("config.")

    @property
    def switch(self) -> bool:
        """True for `--name` without a value; the next argument may be its value."""
        return self.mark == "--" and self.value is None


def argument(raw: str) -> Argument:
    """Parse one argument."""
    option, equals, value = raw.partition("=")
    found = _MARK.match(option)
    mark = found.group() if found is not None else ""
    return Argument(raw, mark, option[len(mark) :], value if equals else None)


class Arguments:
    """Arguments from left to right. If the next argument is the value of the current one, the reader removes it too."""

    def __init__(self, words: Sequence[str]) -> None:
        self._rest = [argument(word) for word in words]

    def __iter__(self) -> Iterator[Argument]:
        while self._rest:
            yield self._rest.pop(0)

    def value(self) -> str | None:
        """Remove and return the next argument as a value, whatever its form; None at the end."""
        return self._rest.pop(0).raw if self._rest else None

    def plain_value(self) -> str | None:
        """Remove and return the next argument unless it is an option or an assignment."""
        return self.value() if self._rest and is_plain(self._rest[0]) else None

    def typed(self, item: Argument) -> list[str]:
        """Return the argument as the user wrote it, with a plain next argument if it has no value."""
        after = self.plain_value() if item.value is None else None
        return [item.raw] if after is None else [item.raw, after]

    def next(self) -> Argument | None:
        """Return the next argument without removing it."""
        return self._rest[0] if self._rest else None


def is_plain(item: Argument) -> bool:
    """Return True for a value or a command: neither an option nor an assignment."""
    return item.value is None and item.mark != "--"


def with_values(words: Sequence[str]) -> Iterator[tuple[Argument, str]]:
    """Yield every argument with its value, or with the next argument if it has none; empty at the end."""
    for i, word in enumerate(words):
        item = argument(word)
        yield item, "".join(words[i + 1 : i + 2]) if item.value is None else item.value


def without(words: Sequence[str], names: Collection[str], switches: Collection[str] = ()) -> list[str]:
    """Return the arguments without these options and their values, and without the switches."""
    kept, arguments = list[str](), Arguments(words)
    for item in arguments:
        if item.option in switches:
            continue
        if item.name.replace("-", "_") not in names:
            kept.append(item.raw)
        elif item.value is None:
            arguments.value()
    return kept


def bare(words: Sequence[str]) -> Iterator[Argument]:
    """Yield the arguments that are neither options, nor their values, nor assignments."""
    arguments = Arguments(words)
    for item in arguments:
        if item.switch:
            arguments.plain_value()
        elif item.value is None and item.mark in ("", "-"):
            yield item
