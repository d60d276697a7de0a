"""Commands of launch.py as a user types them, each in a fresh process, and the files that keep their answers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def launched(line: str, folder: Path, stderr: int) -> subprocess.CompletedProcess[str]:
    """Run `launch.py` with what the user types behind it. stderr: of subprocess, PIPE or STDOUT."""
    packages = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *shlex.split(line)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=120,
        check=False,
    )


def typed_in(file: Path, prompt: str) -> list[str]:
    """What is typed behind the prompt in a file of answers."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]


def write_or_print(file: Path, text: str) -> None:
    """Write the answers of now into the file where --write is given, else print them."""
    if "--write" in sys.argv[1:]:
        file.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
