"""A run of launch.py small enough for subprocess tests: 50 thousand parameters, generated documents, byte tokens.

All tests of a session use the same documents and token cache (the `tiny_text` fixture of conftest.py).
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from awake_clock import AwakeClock, wait_awake
from mudd_core.cli import main
from places import HELPERS, ROOT

CONFIG = HELPERS / "tiny_run_config.py"
MIXTURE = HELPERS / "tiny_mixture_config.py"
# Fields of metrics.jsonl that depend on time; all others must be equal bit for bit.
TIMES = ("seconds", "tokens_per_second", "peak_share", "phases", "hidden", "load")


def write_text(folder: Path) -> Path:
    """Write a folder of small files in a reproducible artificial language."""
    rng = random.Random(11)
    words = ["".join(rng.choice("aeioumnrstkl") for _ in range(rng.randint(2, 7))) for _ in range(60)]
    for number in range(60):
        lines = [" ".join(rng.choice(words) for _ in range(9)) + "." for _ in range(30)]
        (folder / f"{number:02}.txt").write_text("\n".join(lines) + "\n")
    return folder


@dataclass
class TinyRun:
    """One work directory, run as often as needed; every call is a separate process."""

    workdir: Path
    text: Path
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    log_suffix: str = ".log"
    prefix: tuple[str, ...] = ()  # arguments in front of the command
    config: Path = CONFIG

    def command(self) -> list[str]:
        data = (f"data.path={self.text}", f"data.cache_dir={self.text.parent / 'cache'}")
        return [
            *self.prefix,
            sys.executable,
            str(ROOT / "launch.py"),
            f"--config={self.config}",
            f"--workdir={self.workdir}",
            *data,
            *self.words,
        ]

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """Start the command; its output goes to a file next to the work directory, because a pipe may fill."""
        paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "OMP_NUM_THREADS": "1",
            **self.environment,
            **environment,
        }
        with self.log_path.open("w") as log:
            return subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, env=env, text=True)

    def finish(self, timeout: float = 60, **environment: str) -> int:
        """Run to the end; return the exit code, negative for a signal."""
        process = self.start(**environment)
        try:
            return wait_awake(process, timeout)
        finally:
            process.kill()

    def finished(self, **environment: str) -> TinyRun:
        """Run to the end and require that the run is complete."""
        assert self.finish(**environment) == 0, self.tail
        return self

    def finish_here(self) -> int:
        """Run to the end in this process, without the half second of a fresh one, and return the exit code.

        Use `finish` if the test is about the process: its streams, signals, environment or start.
        """
        assert not self.prefix and not self.environment
        with self.log_path.open("w") as log, redirect_stdout(log), redirect_stderr(log), catch_warnings():
            simplefilter("default")  # warnings are printed, as in a fresh process; pytest makes them errors
            return main(self.command()[2:])

    def trained(self) -> TinyRun:
        """Run to the end in this process, and require that the run is complete."""
        assert self.finish_here() == 0, self.tail
        return self

    def stopped(self, **environment: str) -> TinyRun:
        """Run until the run stops with its state saved (exit code 75)."""
        assert self.finish(**environment) == 75, self.tail
        return self

    def same_as(self, other: TinyRun) -> bool:
        """Return True if two finished runs have the same weights and logged values."""
        return self.summary()["final_hash"] == other.summary()["final_hash"] and self.rows() == other.rows()

    @property
    def log_path(self) -> Path:
        return self.workdir.with_name(self.workdir.name + self.log_suffix)

    @property
    def output(self) -> str:
        """The output of the newest process, both streams."""
        return self.log_path.read_text()

    @property
    def tail(self) -> str:
        """The end of the output, for messages of failing tests."""
        return "\n".join(self.output.splitlines()[-25:])

    @property
    def checkpoints(self) -> Path:
        return self.workdir / "checkpoints"

    def rows(self) -> list[dict[str, Any]]:
        """Return metrics.jsonl without the fields that depend on time."""
        lines = (self.workdir / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.workdir / "summary.json").read_text())
        return found

    def events(self) -> list[dict[str, Any]]:
        path = self.workdir / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def step_printed(self) -> int:
        """Return the step of the newest progress line of the newest process; 0 before the first."""
        found = re.findall(r"^step +(\d+)/", self.output, re.MULTILINE)
        return int(found[-1]) if found else 0

    def wait_for_step(self, process: subprocess.Popen[str], step: int, timeout: float = 60) -> None:
        """Return after this step is printed. Raise AssertionError if the process ends or hangs before."""
        self._wait(process, lambda: self.step_printed() >= step, f"step {step}", timeout)

    def wait_for_text(self, process: subprocess.Popen[str], text: str, timeout: float = 60) -> None:
        """Return after the process has printed this. Raise AssertionError if it ends or hangs before."""
        self._wait(process, lambda: text in self.output, repr(text), timeout)

    def _wait(
        self, process: subprocess.Popen[str], done: Callable[[], bool], what: str, timeout: float
    ) -> None:
        clock = AwakeClock()
        while not done():
            assert process.poll() is None, f"ended with {process.returncode} before {what}:\n{self.tail}"
            assert clock.look() < timeout, f"no {what} within {timeout} s:\n{self.tail}"
            time.sleep(0.005)
