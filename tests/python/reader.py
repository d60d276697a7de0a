"""A simulated reader: a scratch copy of the checkout in which the commands of a page are typed in order.

The copy contains the git-tracked files of the folders that commands name, and a separate `.venv` with the packages of
this one. `./run` finds it up to date and compiles nothing: cmake is replaced by a program that does nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from page_command_rules import RUN, answer, typed_line
from page_commands import Typed
from places import ROOT
from reader_files import VARIABLES, write_files

PARTS = (
    "README.md",
    "LICENSE",
    "launch.py",
    "run",
    "pyproject.toml",
    "CMakeLists.txt",
    "configs",
    "docs",
    "examples",
)
BUILD = ("scripts", "cpp/cmake/python.cmake", "bench/CMakeLists.txt", "deploy")
_SCRIPT = """{{ {command}
}} >"$LOGS/{number}.out" 2>"$LOGS/{number}.err"
echo $? >"$LOGS/{number}.rc"
date +%s.%N >"$LOGS/{number}.end"
"""
_PROGRAM = re.compile(r"(mpirun .*)?(python3? |\./)launch\.py |\./run train")
# A reader is not root and has a core for each rank.
_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


@dataclass(frozen=True)
class Done:
    """The result of a command: exit code (None if not reached or hanging), streams, seconds."""

    command: str
    code: int | None
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        end = f"exit code {self.code} after {self.seconds:.1f} s"
        return f"{self.command}\n  {end}\n{self.out[-800:]}{self.err[-1200:]}"


class Reader:
    """The scratch copy; `type_all` runs the commands of a page."""

    def __init__(self, folder: Path) -> None:
        """folder: created here."""
        self.folder = folder
        self.done: list[Done] = []
        for part in (*PARTS, *BUILD):
            _copy(ROOT / part, folder / part)
        _environment(folder)
        (folder / "tmp").mkdir()
        write_files(folder)

    def type_all(self, commands: Iterable[Typed], *, activated: bool, seconds: float = 900) -> list[Done]:
        """Run the commands marked for execution in one shell; return the results, also of failures.

        A command of the program that succeeded on an earlier page is not run again; its results are still there.
        activated: the shell has run `. .venv/bin/activate`.
        """
        lines: list[str] = []
        for typed in commands:
            if answer(typed).startswith(RUN):
                lines.append(self._line(typed, lines[-1] if lines else ""))
        succeeded = {_plain(each.command) for each in self.done if each.code == 0}
        new = [line for line in lines if not (_PROGRAM.match(line) and _plain(line) in succeeded)]
        return self.type(new, activated=activated, seconds=seconds)

    def type(self, lines: Sequence[str], *, activated: bool = True, seconds: float = 900) -> list[Done]:
        """Run lines unchanged, in one shell."""
        logs = self.folder / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir()
        script = self.folder / "typed.sh"
        first = ". .venv/bin/activate\n" if activated else ""
        typed = (_SCRIPT.format(command=line, number=number) for number, line in enumerate(lines))
        script.write_text(first + "".join(typed))
        begun = time.time()
        with subprocess.Popen(
            ["bash", "typed.sh"],
            cwd=self.folder,
            env=self._variables(logs),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as shell:
            try:
                shell.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, 9)
        found = []
        for number, line in enumerate(lines):
            code, out, err, end = (_text(logs / f"{number}.{name}") for name in ("rc", "out", "err", "end"))
            ended = float(end) if end else time.time()
            found.append(Done(line, int(code) if code else None, out, err, ended - begun))
            begun = ended
        self.done += found
        return found

    def _line(self, typed: Typed, before: str) -> str:
        """Return the line to run: with the arguments of its rule, and with /tmp and /data inside this copy."""
        return re.sub(r"(?<=[=\s])/(?=(tmp|data)/)", f"{self.folder}/", typed_line(typed, before))

    def _variables(self, logs: Path) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "HOME", "TMPDIR")
        }
        places = [self.folder / "bin", *map(Path, os.environ["PATH"].split(os.pathsep))]
        return {
            **kept,
            **VARIABLES,
            **_MPI,
            "PATH": os.pathsep.join(map(str, places)),
            "PYTHON": os.path.realpath(sys.executable),
            "HF_HOME": str(self.folder / "hub"),
            "LOGS": str(logs),
        }


def failed(done: Iterable[Done]) -> str:
    """Return the commands that failed, for a message; empty if there are none. 1 is an answer of `diff`."""
    return "\n\n".join(str(each) for each in done if each.code not in _expected(each.command))


def _expected(command: str) -> tuple[int, ...]:
    return (0, 1) if re.match(r".*launch\.py diff ", command) else (0,)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def _plain(line: str) -> str:
    """Return the command without its choice between the names of the interpreter."""
    return line.replace("python3 ", "python ")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def _environment(folder: Path) -> None:
    """Create .venv with this environment's packages, the stamps of `./run`, and a cmake that does nothing."""
    here, there = Path(sys.prefix), folder / ".venv"
    (there / "bin").mkdir(parents=True)
    python = os.path.realpath(sys.executable)
    for name in ("python", "python3"):
        (there / "bin" / name).symlink_to(python)
    shutil.copy(here / "pyvenv.cfg", there)
    (there / "bin" / "activate").write_text(
        (here / "bin" / "activate").read_text().replace(str(here), str(there))
    )
    (there / "lib").symlink_to(here / "lib")
    (folder / "build" / "run").mkdir(parents=True)
    for name in ("build.ninja", "_core.none.so"):
        (folder / "build" / "run" / name).touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "cmake").write_text("#!/bin/sh\n")
    (folder / "bin" / "cmake").chmod(0o755)
    _stamps(folder, python)


def _stamps(folder: Path, python: str) -> None:
    """Write the stamp files that `./run setup` writes when everything is installed."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    groups = {"base": project["project"]["dependencies"], "build": project["build-system"]["requires"]}
    files = ("pyproject.toml", "CMakeLists.txt", "cpp/cmake/python.cmake", "bench/CMakeLists.txt")
    sums = subprocess.run(["cksum", *files], cwd=folder, capture_output=True, text=True, check=True).stdout
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    stamps = folder / ".venv" / "stamps"
    stamps.mkdir()
    (stamps / "venv").write_text(f"{folder.resolve()} {python} {version}\n")
    (stamps / "install").write_text(sums)
    for name, lines in groups.items():
        (stamps / f"group-{name}").write_text("".join(line.replace(" ", "") + "\n" for line in lines))
