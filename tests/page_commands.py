"""All commands of pages, comments of configs, examples, notebooks and help texts.

    python tests/page_commands.py    print the table; `./run docs` writes it into tests/data/page_commands.txt

The commands are read from the sources; page_command_rules.py says what a test does with them. Each command is executed
as typed unless a rule there names it. The table leaves out the commands that docs/coming-from has from
tests/data/commands. CHANGELOG.md and bench/results record what was typed at a date, and are left out.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mudd_core.cli import main as command_line
from mudd_core.cli.names import COMMANDS, TOOLS

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "data" / "page_commands.txt"
# Commands that prose names without `launch.py`.
NAMES = sorted({name.split()[0] for name in (*COMMANDS, *TOOLS)})
_PROGRAMS = (
    *(
        "python",
        "python3",
        "./run",
        "./launch.py",
        "launch.py",
        "mudd",
        "mpirun",
        "srun",
        "sbatch",
        "pip",
        "git",
    ),
    *(
        "kubectl",
        "docker",
        "sudo",
        "bash",
        "ninja",
        "cmake",
        "ctest",
        "gdb",
        "py-spy",
        "hf",
        "huggingface-cli",
    ),
    *("tensorboard", "helm", "gcloud", "xpk", "black", "export", "cd", "yes"),
    r"\.venv/bin/\S+",
    r"build/\S+",
)
_COMMAND = re.compile(rf"(?:\w+=\S+ )*(?:{'|'.join(_PROGRAMS)}) (?=\S)|docker/\S+\.sh|\. \.venv")
_SHORT = re.compile(rf"(?:{'|'.join(NAMES)}) (?=\S)(?!(?:h5py|mudd_core|threading)\b)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_EXAMPLE = re.compile(r"(mpirun \S+ \S+ )?python3 (launch\.py|-m mudd_core) (?!\[)")
_BEHIND = re.compile(r" {2,}(?=\S)")  # between an example of a help text and its comment
_COMMENT = re.compile(r"\s+#\s.*$")
_ORIGINAL = re.compile(r"<!-- commands: (\w+) -->\n.*?<!-- end of the commands -->", re.DOTALL)


@dataclass(frozen=True)
class Typed:
    """A command and its place. form: block (a line to type), span (within a sentence) or original.

    text: without its comment; a command of several lines is one line. original: of another program's document, which
    tests/data/commands has.
    """

    place: str
    text: str
    form: str


@functools.cache
def commands() -> list[Typed]:
    """Return all commands in the order of places and lines, without repetitions within a place."""
    found = [typed for name in pages() for typed in of_page(name, (ROOT / name).read_text(encoding="utf-8"))]
    for name in _tracked("configs", "examples"):
        text = (ROOT / name).read_text(encoding="utf-8")
        found += [typed for _, typed in _spans(name, text)]
        found += [Typed(name, line, "span") for line in re.findall(r"^# Use: (.*)", text, re.MULTILINE)]
    for name in _tracked("notebooks"):
        cells = json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if cell["cell_type"] == "markdown":
                found += of_page(name, "".join(cell["source"]))
    return list(dict.fromkeys([*found, *helped()]))


def pages() -> list[str]:
    """Return the pages with commands that work today."""
    return [
        *("README.md", "CONTRIBUTING.md", "bench/README.md"),
        *(name for name in _tracked("docs") if name.endswith(".md")),
    ]


def of_page(name: str, text: str) -> list[Typed]:
    """Return the commands of a page, in order."""
    originals = [range(*match.span()) for match in _ORIGINAL.finditer(text)]
    found: list[tuple[int, Typed]] = []

    def add(start: int, command: str, form: str) -> None:
        original = any(start in part for part in originals)
        found.append((start, Typed(name, command, "original" if original else form)))

    prose = text
    for match in _FENCE.finditer(text):
        prose = _blank(prose, match)
        if match[1] in ("sh", "bash", "console", "") and not match[2].lstrip().startswith(("#", "import")):
            for number, line in enumerate(logical(match[2])):
                if match[1] or _COMMAND.match(line):
                    add(match.start() + number, line, "block")
    for match in _INDENTED.finditer(prose):
        lines = logical(match[0])
        if lines and _COMMAND.match(lines[0]):
            prose = _blank(prose, match)
            for number, line in enumerate(lines):
                add(match.start() + number, line, "block")
    for start, typed in _spans(name, prose):
        add(start, typed.text, typed.form)
    return [typed for _, typed in sorted(found, key=lambda each: each[0])]


def logical(block: str) -> list[str]:
    """Return the commands of a shell block: continued lines are joined; comments and empty lines are removed."""
    lines = (" ".join(line.split()) for line in block.replace("\\\n", " ").splitlines())
    return [_COMMENT.sub("", line) for line in lines if line and not line.startswith("#")]


def helped() -> list[Typed]:
    """Return the examples of every help text."""
    found = []
    for name in ("", *COMMANDS, *TOOLS, "mup check", "mup transfer", "clm"):
        words = [*name.split(), "--help"]
        for line in map(str.strip, _printed(words).splitlines()):
            if _EXAMPLE.match(line):
                found.append(Typed(f"launch.py {' '.join(words)}", _BEHIND.split(line)[0], "block"))
    return found


def _printed(words: list[str]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert command_line(words) == 0, words
    return output.getvalue()


def _tracked(*folders: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def _blank(text: str, match: re.Match[str]) -> str:
    """Return spaces and line breaks for a match, so that positions stay the same."""
    return text[: match.start()] + re.sub(r"[^\n]", " ", match[0]) + text[match.end() :]


def _spans(name: str, text: str) -> Iterator[tuple[int, Typed]]:
    for match in _SPAN.finditer(text):
        command = " ".join(match[1].split())
        if _COMMAND.match(command) or _SHORT.match(command):
            yield match.start(), Typed(name, command, "span")


def text() -> str:
    """Return the table: place, what a test does, command. tests/data/commands has the documents' commands."""
    from page_command_rules import answer

    lines = []
    place = ""
    for typed in commands():
        if typed.form == "original":
            continue
        if typed.place != place:
            place = typed.place
            lines.append(f"\n{place}")
        lines.append(f"  {answer(typed)} | {typed.text}")
    return "\n".join(lines).lstrip("\n") + "\n"


if __name__ == "__main__":
    print(text(), end="")
