"""Comparison of runs, made of parts that a terminal and a page show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """title: of the part. rows: a table, its head first, empty for none. notes: sentences below it.

    words: whether the cells are words, aligned left, and not numbers.
    """

    title: str
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = field(default_factory=list)
    words: bool = False


def with_head(name: str, letters: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the rows below a head of a name and the runs' letters; nothing for no rows."""
    return [[name, *letters], *rows] if rows else []
