"""The exact commands of the five programs' documents and our equivalents (tests/data/commands/PROGRAM.txt).

A file has parts. Each begins with notes (lines with `=== `) and continues with a piece of the document, as printed:

    === program [NAME=VALUE ...]   the piece has a command of the program; the values replace its `...`
    === TEXT -> OURS               the piece has another command, and what takes its place; ` ...` shortens TEXT
    === option of the first command   the piece is an option that the document's text adds to that command
    === python                     the piece is Python, not shell

After the piece, a line with `==> ` and lines with `--> ` have the outcome of each new command: the work directory
and the notes, then the config fields that differ from the family's defaults (python tests/documents.py).
At the end of a file, `=== items` starts the table of tests/covered.py. `card.txt` has that table alone.

This is the one list of the commands: pages in docs/coming-from and tests derive from it. A test that runs a command
adds `M_` variables or files, and no arguments.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "data" / "commands"
# How a document starts its program, and how we start mudd_core.
PROGRAMS = {
    "muddformer": {"python MaxText/train.py": "./launch.py"},
    "tokenformer": {"python3 MaxText/train.py": "./launch.py"},
    "mu_transformer": {"poetry run python3 mu_transformer/jax_impl/launch.py": "./launch.py"},
    "jax_lm": {
        "python -m jax_lm.preprocess": "python -m mudd_core.preprocess",
        "python -m jax_lm.train": "python -m mudd_core.train",
    },
    "mlperf_moe": {"python run_clm.py": "./launch.py clm"},
}
_ASSIGNMENT = re.compile(r"^(?:export )?([A-Z_]+)=([^\s#]*)", re.MULTILINE)
_END = re.compile(r";|\s*2>&1|\n")  # of a command
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
ITEMS = "=== items"
_OUTCOME, _FIELDS = "==> ", "--> "
_WIDTH = 116
_CONFIG = "config"


@dataclass(frozen=True)
class Part:
    """A piece of a document with its notes, and the outcomes of its new commands that train."""

    notes: tuple[str, ...]
    text: str
    outcomes: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True)
class Command:
    """A command of the program as the document prints it, and ours with its arguments.

    printed: the exact text. theirs: the document's arguments after the interpreter, as a shell passes them.
    """

    program: str
    words: tuple[str, ...]
    printed: str
    theirs: tuple[str, ...]


def parts(name: str) -> list[Part]:
    """Return the pieces of a document, in order."""
    found: list[tuple[list[str], list[str]]] = []
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition(ITEMS)[0]
    for line in text.splitlines():
        if line.startswith("=== "):
            if not found or found[-1][1]:
                found.append(([], []))
            found[-1][0].append(line.removeprefix("=== "))
        elif found:
            found[-1][1].append(line)
    return [_part(notes, lines) for notes, lines in found]


def _part(notes: list[str], lines: list[str]) -> Part:
    piece = [line for line in lines if not line.startswith((_OUTCOME, _FIELDS))]
    outcomes: list[dict[str, object]] = []
    for line in lines:
        if line.startswith(_OUTCOME):
            outcomes.append({**_values(line.removeprefix(_OUTCOME)), _CONFIG: {}})
        elif line.startswith(_FIELDS):
            config = outcomes[-1][_CONFIG]
            assert isinstance(config, dict)
            config |= _values(line.removeprefix(_FIELDS))
    return Part(tuple(notes), "\n".join(piece).strip("\n"), tuple(outcomes))


def _values(line: str) -> dict[str, object]:
    """Read `NAME=JSON NAME=JSON ...`."""
    found: dict[str, object] = {}
    at = 0
    while at < len(line):
        name, _, _ = line[at:].partition("=")
        found[name], at = json.JSONDecoder().raw_decode(line, at + len(name) + 1)
        at += 1
    return found


def outcome_lines(outcome: Mapping[str, object]) -> Iterator[str]:
    """Write an outcome as the lines that `parts` reads."""
    config = outcome[_CONFIG]
    assert isinstance(config, Mapping)
    rest = {name: value for name, value in outcome.items() if name != _CONFIG}
    yield _OUTCOME + " ".join(_written(rest))
    line = _FIELDS.rstrip()
    for pair in _written(config):
        if len(line) + len(pair) > _WIDTH and line != _FIELDS.rstrip():
            yield line
            line = _FIELDS.rstrip()
        line += f" {pair}"
    yield line


def _written(values: Mapping[str, object]) -> list[str]:
    return [f"{name}={json.dumps(value)}" for name, value in values.items()]


def commands(name: str) -> list[Command]:
    """Return the commands that the program accepts, each once."""
    return [command for _, new in new_commands(name) for command in new]


def new_commands(name: str) -> list[tuple[Part, list[Command]]]:
    """Return each piece with the commands that no earlier piece has."""
    found: list[Command] = []
    by_part = []
    for part in parts(name):
        known = len(found)
        for note in part.notes:
            if note.split()[0] == "program":
                found += _of_program(name, part.text, dict(_ASSIGNMENT.findall(note.replace(" ", "\n"))))
            elif note == "option of the first command":
                first = found[0]
                found.append(
                    Command(
                        first.program,
                        (*first.words, part.text),
                        f"{first.printed} {part.text}",
                        (*first.theirs, part.text),
                    )
                )
        found = list(dict.fromkeys(found))
        by_part.append((part, found[known:]))
    return by_part


def others(name: str) -> list[tuple[str, str]]:
    """Return the commands of a document that belong to other programs, and their replacements."""
    notes = (note.partition(" -> ") for part in parts(name) for note in part.notes if " -> " in note)
    return [(theirs, ours) for theirs, _, ours in notes]


def printed_commands(name: str, text: str) -> list[tuple[str, str]]:
    """Return (how the program is started, the exact command) for each command in a piece of a document."""
    found = []
    starts = "|".join(map(re.escape, PROGRAMS[name]))
    for match in re.finditer(starts, text):
        rest = text[match.start() :].replace("\\\n", "\0")
        end = _END.search(rest)
        found.append((match[0], (rest[: end.start()] if end else rest).replace("\0", "\\\n")))
    return found


def _of_program(name: str, text: str, values: dict[str, str]) -> list[Command]:
    variables = dict(_ASSIGNMENT.findall(text)) | values
    found = []
    for start, printed in printed_commands(name, text):
        given = [_filled(word, variables) for word in shlex.split(printed.replace("\\\n", " "))]
        arguments = given[len(shlex.split(start)) :]
        ours = shlex.split(PROGRAMS[name][start])
        program, *first = (
            ours[2:] if ours[:2] == ["python", "-m"] else [ours[0].removeprefix("./"), *ours[1:]]
        )
        theirs = given[given.index("run") + 2 :] if given[:2] == ["poetry", "run"] else given[1:]
        found.append(Command(program, (*first, *arguments), printed, tuple(theirs)))
    return found


def _filled(word: str, variables: dict[str, str]) -> str:
    while (found := _VARIABLE.search(word)) and (name := found[1] or found[2]) in variables:
        word = word[: found.start()] + variables[name] + word[found.end() :]
    return word
