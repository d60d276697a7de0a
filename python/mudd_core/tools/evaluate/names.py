"""The names of tasks, read from the files of tasks without the harness, whose import and index take many seconds."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config.suggest import likeness

_NEAREST = 5  # suggestions for an unknown name
# A task, a group or a tag, with the list on the lines that follow.
_DEFINED = re.compile(rb"""^["']?(?:task|group|tag)["']?[ \t]*:(.*(?:\n[ \t]*- .*)*)""", re.MULTILINE)
_AROUND = b" \t\r-[]\"'"  # characters around a name in YAML
_OTHER_FILES = (".py", ".pyc", ".md")  # a file that a task includes may have any other suffix
_MOST = 1 << 20  # bytes of a file that are read


def require_possible(names: Iterable[str], folders: Sequence[Path]) -> None:
    """Raise UserError with the nearest names for one that is in no file of the folders.

    Another name occurs in a file, and only the harness's index says whether it is a task.
    """
    waiting = {
        name: re.compile(rb"(?<![\w-])" + re.escape(os.fsencode(name)) + rb"(?![\w-])") for name in names
    }
    known = set[str]()
    for folder in folders:
        for data in contents(folder):
            for name in [name for name, pattern in waiting.items() if pattern.search(data)]:
                del waiting[name]
            if not waiting:
                return
            known |= set(defined(data))
    raise unknown(next(iter(waiting)), known)


def unknown(name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that is no task, with the nearest names."""
    near = sorted(sorted(known), key=lambda other: -likeness(name, other))[:_NEAREST]
    return UserError(
        f"[evaluate] --tasks: there is no task '{name}'; the nearest names: {', '.join(near)} (--tasks=list prints all)"
    )


def contents(folder: Path) -> Iterator[bytes]:
    """Yield the content of the files that may define tasks."""
    for place, _, files in os.walk(folder):
        for file in files:
            path = Path(place, file)
            if path.suffix in _OTHER_FILES or not path.is_file():
                continue
            # The harness skips files that it cannot read, too.
            with contextlib.suppress(OSError), path.open("rb") as f:
                yield f.read(_MOST)


def defined(data: bytes) -> Iterator[str]:
    """Yield the tasks, groups and tags of a YAML file."""
    for lines in _DEFINED.findall(data):
        for line in lines.splitlines():
            for part in line.partition(b"#")[0].rpartition(b":")[2].split(b","):
                if name := part.strip(_AROUND):
                    yield name.decode("utf-8", "replace")
