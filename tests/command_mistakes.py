"""The commonest mistakes on the command line, each with its answer: tests/data/cli/mistakes.txt.

    python tests/command_mistakes.py            print the lines of that file with the answers of now
    python tests/command_mistakes.py --write    write them into the file

A new line of the file is `$ ` and what the user types behind `python3 launch.py`; its answer is written under it. The
commands run in one empty folder with a file notes.txt, each in a child of a process that has imported the program.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "data" / "cli" / "mistakes.txt"
_PROMPT = "$ "
_TYPED = str(ROOT / "launch.py")


def answer(line: str, folder: Path, log: Path) -> str:
    """What the command prints on standard error; its exit code where that is not 2."""
    importlib.import_module("mudd_core.cli.dispatch")
    if (child := os.fork()) == 0:
        _run([_TYPED, *shlex.split(line)], folder, log)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = log.read_text(encoding="utf-8").strip()
    said = said.replace(f"python3 {_TYPED}", "python3 launch.py").replace(_TYPED, "python3 launch.py")
    return said if code == 2 else f"exit code {code}"


def _run(argv: Sequence[str], folder: Path, log: Path) -> None:
    """Be the command in this child; standard error goes to a file."""
    code = 70
    try:
        os.chdir(folder)
        for number, flags in ((1, os.O_WRONLY), (2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
            os.dup2(os.open(log if number == 2 else os.devnull, flags, 0o600), number)
        sys.argv = list(argv)
        code = importlib.import_module("mudd_core.cli").main()
    finally:
        os._exit(code)


def text(lines: list[str]) -> str:
    """The file with the answers of now."""
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(ROOT / "python"))
    typed = [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as logs:
        folder = Path(name)
        (folder / "notes.txt").write_text("notes\n", encoding="utf-8")
        answers = [answer(line, folder, Path(logs) / "log") for line in typed]
        left = [path.name for path in folder.iterdir()]
    if left != ["notes.txt"]:
        raise AssertionError(f"a mistake left files: {left}")
    return "\n".join(f"{_PROMPT}{line}\n{told}\n" for line, told in zip(typed, answers, strict=True))


if __name__ == "__main__":
    made = text(FILE.read_text(encoding="utf-8").splitlines())
    if "--write" in sys.argv[1:]:
        FILE.write_text(made, encoding="utf-8")
    else:
        print(made, end="")
