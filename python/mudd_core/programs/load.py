"""The package's load_config: mudd_core configs, and the files and names of the original programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mudd_core import config as own
from mudd_core.config import Config, check_config
from mudd_core.config.replaced import Changes
from mudd_core.programs.program import CommandLine, is_our_own, program_of_command


def load_config(path: str | Path, overrides: Sequence[str] | Changes = ()) -> Config:
    """Load and check a config: `load_config("small.py", {"train.steps": 10})`.

    path: a file, a name of mc.list_configs(), a file of an original program (`base_v2.yml`), or `clm`.
    overrides: a dict of fields as for Config.replace; for a file of an original program, a dict of the program's keys.
    A list of command-line arguments such as ["train.steps=10"], in the grammar of the file, works as well.
    Raise UserError (a ValueError) that names the field, the rule and the nearest valid name.
    """
    if isinstance(overrides, str):
        raise TypeError(
            f"[load_config] overrides: expected a dict of fields or a list of strings, got a str; pass [{overrides!r}]"
        )
    if isinstance(path, Mapping):
        raise TypeError(
            "[load_config] path: expected a file or a name of mc.list_configs(), got a dict; pass a config first: "
            'mc.load_config("tiny.py", {"train.steps": 10})'
        )
    words = _words(overrides) if isinstance(overrides, Mapping) else tuple(overrides)
    command, file = (str(path), "") if program_of_command(str(path)) is not None else ("", str(path))
    nowhere = {"--workdir": "."}  # no run starts, so the run needs no name
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
    values = {
        name: str(value).lower() if isinstance(value, bool) else value for name, value in overrides.items()
    }
    return tuple(f"{name}={value}" for name, value in values.items())
