"""A part of the page: its title, and its content as HTML."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """title: plain text. body: HTML in which all text of a run is escaped."""

    title: str
    body: str
