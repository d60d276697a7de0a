"""The commonest mistakes on the command line, each with its answer: tests/data/cli/mistakes.txt.

    python tests/command_mistakes.py            print the lines of that file with the answers of now
    python tests/command_mistakes.py --write    write them into the file

A new line of the file is `$ ` and what the user types behind `python3 launch.py`; its answer is written under it. The
commands run in one empty folder with a file notes.txt, each in a fresh process.
"""

from __future__ import annotations

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from typed_commands import ROOT, launched, typed_in, write_or_print

FILE = ROOT / "tests" / "data" / "cli" / "mistakes.txt"
_PROMPT = "$ "


def answer(line: str, folder: Path) -> str:
    """What the command prints on standard error; its exit code where that is not 2."""
    done = launched(line, folder, subprocess.PIPE)
    typed = str(ROOT / "launch.py")
    said = (
        done.stderr.strip()
        .replace(f"python3 {typed}", "python3 launch.py")
        .replace(typed, "python3 launch.py")
    )
    return said if done.returncode == 2 else f"exit code {done.returncode}"


def text(typed: list[str]) -> str:
    """The file with the answers of now."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        (folder / "notes.txt").write_text("notes\n", encoding="utf-8")
        answers = list(pool.map(lambda line: answer(line, folder), typed))
        left = [path.name for path in folder.iterdir()]
    if left != ["notes.txt"]:
        raise AssertionError(f"a mistake left files: {left}")
    return "\n".join(f"{_PROMPT}{line}\n{told}\n" for line, told in zip(typed, answers, strict=True))


if __name__ == "__main__":
    write_or_print(FILE, text(typed_in(FILE, _PROMPT)))
