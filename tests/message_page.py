"""The page docs/reference/messages.md: messages of the goldens, each with its cause and its solution.

tests/data/messages.txt lists the cases. Their messages come from tests/data/cli/mistakes.txt, tests/data/cli/starts.txt
and tests/data/api/mistakes.txt, so a changed message changes the page. `./run docs` writes it.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).resolve().parent / "data"
FILES = {"typed": "cli/mistakes.txt", "started": "cli/starts.txt", "called": "api/mistakes.txt"}
_OPENING = re.compile(r"error: |warning: |[\w.]+Error: ")


class Message(NamedTuple):
    """A case of a golden: the file by its key in FILES, the line of the case, a title, and the solution."""

    file: str
    case: str
    title: str
    mend: str


def sections() -> dict[str, list[Message]]:
    """Return the messages of the page by section, as tests/data/messages.txt lists them."""
    found: dict[str, list[Message]] = {}
    for line in (DATA / "messages.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        elif line and not line.startswith("#"):
            place, title, mend = line.split(" | ")
            file, _, case = place.partition(" ")
            found[list(found)[-1]].append(Message(file, case, title, mend))
    return found


@cache
def cases(file: str) -> dict[str, str]:
    """Return the output of each case of a golden by the line of the case, without its mark."""
    found: dict[str, str] = {}
    for block in (DATA / FILES[file]).read_text(encoding="utf-8").strip().split("\n\n"):
        first, _, output = block.partition("\n")
        found[first.removeprefix("$ ").removeprefix(">>> ")] = output
    return found


def message(one: Message) -> str:
    """Return the errors and warnings of a case; KeyError if the golden no longer has it."""
    lines = [line for line in cases(one.file)[one.case].splitlines() if not line.startswith("exit code ")]
    first = next(place for place, line in enumerate(lines) if _OPENING.match(line))
    return "\n".join(lines[first:])


def text() -> str:
    """Return the whole page."""
    parts = [
        "# Messages and their solutions",
        "A message names the place in brackets, then what was expected and what was found. Most messages end with the "
        "command or value to use. These are the messages that users meet most, each after the command or call of an "
        "example. [Exit codes](reference/exit-codes.md) says how a command ends, and [Symptoms](running/symptoms.md) "
        "covers runs that fail without a message. `./run docs` writes this page from messages that tests compare.",
    ]
    for section, messages in sections().items():
        parts.append(f"## {section}")
        for one in messages:
            typed = f">>> {one.case}" if one.file == "called" else f"$ launch.py {one.case}"
            parts.append(f"### {_sentence(one.title)}\n\n```text\n{typed}\n{message(one)}\n```\n\n{one.mend}")
    return _relinked("\n\n".join(parts))


def _sentence(title: str) -> str:
    return title if title.startswith("-") else title[0].upper() + title[1:]


def _relinked(page: str) -> str:
    """Return the page with its links, which are relative to docs/, relative to docs/reference/."""
    return re.sub(r"\]\(([^)]+)\)", lambda link: f"]({os.path.relpath(link[1], 'reference')})", page)
