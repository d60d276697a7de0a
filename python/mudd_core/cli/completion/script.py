"""The text of the completion scripts.

names.sh has a function that lists names, for both shells; bash.sh and zsh.sh have the function that calls it. In
names.sh, @NAME@ is replaced by names of this version.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from mudd_core.base.regular_files import read_text
from mudd_core.cli.completion.tables import PARTS, Names

SHELLS = ("bash", "zsh")


def script(shell: str, names: Names, version: str) -> str:
    """Return the script for a shell."""
    pairs = [name for name in (*names.commands, *names.options) if " " in name]
    sections = dict.fromkeys(
        f"{path.partition('.')[0]}." if "." in path else f"{path}=" for path in names.fields
    )
    values = {f"{name}=": [f"{name}={one}" for one in some] for name, some in names.values.items()}
    found = {
        "version": version,
        "shell": shell,
        "fields": _words(names.fields),
        "configs": _words(names.configs),
        "options": _cases(names.options),
        "values": _cases(values),
        "pairs": _pattern(dict.fromkeys(pairs)),
        "commands": _pattern(name for name in dict.fromkeys((*names.options, *PARTS)) if " " not in name),
        "with_fields": _pattern(names.with_fields),
        "with_run": _pattern(names.with_run),
        "names": _words(name for name in names.commands if " " not in name),
        "parts": _cases(_parts(pairs), indent=10),
        "sections": _words(sections),
    }
    listed = re.sub("@([a-z_]+)@", lambda match: found[match[1]], _text("names"))
    head = "#compdef launch.py mudd\n" if shell == "zsh" else ""
    return head + listed + _text(shell)


def _text(name: str) -> str:
    return read_text(Path(__file__).with_name(f"{name}.sh"))


def _parts(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Return the second arguments of commands with two, by the first."""
    found = {name: list(parts) for name, parts in PARTS.items()}
    for pair in pairs:
        first, _, second = pair.partition(" ")
        found.setdefault(first, [])
        if second not in found[first]:
            found[first].append(second)
    return found


def _words(names: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, names))


def _pattern(names: Iterable[str]) -> str:
    """Return a pattern of `case` for any of these names."""
    return "|".join(map(shlex.quote, names))


def _cases(table: Mapping[str, Iterable[str]], indent: int = 4) -> str:
    """Return the branches of a `case` that print the names of each key."""
    return "\n".join(
        f"{' ' * indent}{shlex.quote(key)}) printf '%s\\n' {_words(names)} ;;" for key, names in table.items()
    )
