"""Commands of launch.py as a user types them, each in a separate process, and the files with their answers."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(ROOT / "launch.py")


def launched(line: str, folder: Path, stderr: int) -> subprocess.CompletedProcess[str]:
    """Run `launch.py` with a line of arguments. stderr: of subprocess, PIPE or STDOUT."""
    packages = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, PROGRAM, *shlex.split(line)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=120,
        check=False,
    )


def answered(line: str, folder: Path) -> tuple[int, str]:
    """Return exit code and standard error of `launch.py` in a fork of this process, which has imported its packages."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(said.fileno(), 2)
            os._exit(_run(shlex.split(line)))
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode()


def _run(words: list[str]) -> int:
    """Run the program in this process; return its exit code."""
    sys.argv = [PROGRAM, *words]
    sys.orig_argv = [sys.executable, *sys.argv]
    code: object = 0
    try:
        runpy.run_path(PROGRAM, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else int(code is not None)


def typed_in(file: Path, prompt: str) -> list[str]:
    """Return the typed lines, after the prompt, in a file of answers."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]


def write_or_print(file: Path, text: str) -> None:
    """Write the current answers into the file if --write is given, else print them."""
    if "--write" in sys.argv[1:]:
        file.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
