"""What a command line holds before it is known in which grammar it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CommandLine:
    """A command line in parts.

    command: the first argument if it is a command, else empty. config: value of --config, or a first argument that is
    a yml file. options: other options of this program (cli/names.py). words: all else, as typed. notes: lines for the
    user about what was dropped before.
    """

    command: str = ""
    config: str = ""
    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
