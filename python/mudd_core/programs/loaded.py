"""Configs of this program, and of files and names of the original programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mudd_core import config as own
from mudd_core.config import Config, check_config
from mudd_core.config.keywords import changes_of
from mudd_core.config.replaced import Changes, Value, override, with_changes
from mudd_core.programs.program import CommandLine, is_our_own, program_of_command


def loaded_config(
    path: str | Path, overrides: Sequence[str] | Changes = (), fields: Mapping[str, Value] | None = None
) -> Config:
    """Load and check a config. fields: keywords of load_config, which are set last."""
    config = _loaded(path, overrides)
    return with_changes(config, changes_of("load_config", fields)) if fields else config


def _loaded(path: str | Path, overrides: Sequence[str] | Changes) -> Config:
    if isinstance(overrides, str) or not isinstance(overrides, Mapping | Iterable):
        given = f"a str; pass [{overrides!r}]" if isinstance(overrides, str) else repr(overrides)
        raise TypeError(
            f"[load_config] overrides: expected a dict of fields or a list of strings, got {given}"
        )
    if not isinstance(path, str | Path):
        given = "a dict" if isinstance(path, Mapping) else repr(path)
        raise TypeError(
            f"[load_config] path: expected a file or a name of mc.list_configs(), got {given}; pass a config first: "
            'mc.load_config("tiny.py", {"train.steps": 10})'
        )
    words = _words(overrides) if isinstance(overrides, Mapping) else tuple(overrides)
    command, file = (str(path), "") if program_of_command(str(path)) is not None else ("", str(path))
    nowhere = {"--workdir": "."}  # no run starts, so it needs no name
    asked = CommandLine(command, file, words, nowhere, os.environ)
    if is_our_own(asked):
        return own.load_config(path, overrides)
    from mudd_core.programs.detect import resolve

    resolved = resolve(asked)
    if resolved is None:
        return own.load_config(path, overrides)
    check_config(resolved.config)
    return resolved.config


def _words(overrides: Changes) -> tuple[str, ...]:
    """Return a dict of overrides as arguments in the grammar of an original program."""
    return tuple(override(name, value) for name, value in overrides.items())
