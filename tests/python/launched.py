"""Commands of launch.py, run as a user types them in a fresh process, or faster in this one."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from mudd_core.cli import main
from places import ROOT


def launched(
    folder: Path, *words: str, typed: str = "", timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `launch.py` in a folder with one thread. typed: standard input. environment: additional variables."""
    packages = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=folder,
        input=typed,
        env={**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def arguments_of(line: str) -> list[str]:
    """Return the arguments of a printed command after its launch.py."""
    words = shlex.split(line)
    start = next(i for i, word in enumerate(words) if Path(word).name == "launch.py")
    return words[start + 1 :]


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which saves the half second that a fresh one needs for its imports.

    Use `launched` if the test is about the process: its streams, signals, environment or start.
    """
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("default")  # print, as in a fresh process; pytest makes them errors
            code = main(words)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())
