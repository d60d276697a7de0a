"""The commonest mistakes on the command line, each with its answer: tests/data/cli/mistakes.txt.

    python tests/command_mistakes.py            print the lines of that file with current answers
    python tests/command_mistakes.py --write    write them into the file

A new entry of the file is `$ ` followed by the arguments of `python3 launch.py`; its answer is written under it. The
commands run in one empty folder with a file notes.txt. Each runs in a fork of this process, because a hundred starts of
Python would take most of the time. test_cli.py and test_launch.py type mistakes in fresh processes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy  # noqa: F401  # the forks have it

import mudd_core.cli.requested  # noqa: F401  # likewise
from typed_commands import PROGRAM, ROOT, answered, typed_in, write_or_print

FILE = ROOT / "tests" / "data" / "cli" / "mistakes.txt"
_PROMPT = "$ "


def answer(line: str, folder: Path) -> str:
    """Return the standard error of the command, and its exit code if that is not 2."""
    code, told = answered(line, folder)
    said = (
        told.strip().replace(f"python3 {PROGRAM}", "python3 launch.py").replace(PROGRAM, "python3 launch.py")
    )
    return said if code == 2 else f"exit code {code}"


def text(typed: list[str]) -> str:
    """Return the text of the file with current answers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "notes.txt").write_text("notes\n", encoding="utf-8")
        answers = [answer(line, folder) for line in typed]
        left = [path.name for path in folder.iterdir()]
    if left != ["notes.txt"]:
        raise AssertionError(f"a mistake left files: {left}")
    return "\n".join(f"{_PROMPT}{line}\n{told}\n" for line, told in zip(typed, answers, strict=True))


if __name__ == "__main__":
    write_or_print(FILE, text(typed_in(FILE, _PROMPT)))
