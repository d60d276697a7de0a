"""Comparison of runs: the parts that a terminal and an HTML page show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """A part of a comparison. rows: a table with its head, or empty. notes: sentences below it.

    `words`: the cells are strings, aligned left, not numbers.
    """

    title: str
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = field(default_factory=list)
    words: bool = False


def with_head(name: str, letters: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the rows below a head with the name and the runs' letters; empty without rows."""
    return [[name, *letters], *rows] if rows else []
