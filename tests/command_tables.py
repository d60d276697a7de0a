"""Write the commands of the documents into docs/coming-from/*.md, from tests/data/commands (./run docs).

They are between the lines `<!-- commands: DOCUMENT -->` and `<!-- end of the commands -->`.
"""

from __future__ import annotations

import re
import shlex

import documents

_PART = re.compile(r"<!-- commands: (\w+) -->\n.*?<!-- end of the commands -->", re.DOTALL)
_WIDTH = 116
_BAR = r"\|"  # in a cell of a table


def drawn(page: str) -> str:
    """Return the text of a page with the commands of the documents."""
    return _PART.sub(lambda m: f"<!-- commands: {m[1]} -->\n{part(m[1])}\n<!-- end of the commands -->", page)


def part(name: str) -> str:
    """Return the commands of a document with the program names of mudd_core."""
    programs = documents.PROGRAMS[name]
    told = ", ".join(f"`{ours}` instead of `{theirs}`" for theirs, ours in programs.items())
    lines = [f"Only the name of the program changes: type {told}:", "", "```sh"]
    for command in documents.commands(name):
        program = {"launch.py": "./launch.py"}.get(command.program, f"python -m {command.program}")
        lines += _wrapped([program, *_units(command.words)])
    lines.append("```")
    if others := documents.others(name):
        lines += ["", "| its other commands | here |", "| --- | --- |"]
        lines += [f"| `{theirs.replace('|', _BAR)}` | {_linked(ours)} |" for theirs, ours in others]
    return "\n".join(lines)


def _linked(text: str) -> str:
    """Return a text of the documents with the links of a page in coming-from."""
    return re.sub(r"docs/(\w+\.md)", r"[\1](../\1)", text)


def _quoted(word: str) -> str:
    return shlex.quote(word) if re.search(r"[\s\"'()&;<>|$*?]", word) and "=" not in word else word


def _units(words: tuple[str, ...]) -> list[str]:
    """Return the arguments, with a flag and its value joined."""
    found: list[str] = []
    for word in map(_quoted, words):
        if (
            found
            and found[-1].startswith("--")
            and not re.search("[= ]", found[-1])
            and not word.startswith("--")
        ):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _wrapped(words: list[str]) -> list[str]:
    """Return a command in lines that end with a backslash, except the last."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) > _WIDTH:
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return lines
