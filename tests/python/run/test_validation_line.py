"""The progress line of `validate`: on a terminal it is removed at the end; a pipe gets a line every 5 s."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core.run.records.events import BatchSums
from mudd_core.run.report.progress import Progress, ValidationLine
from places import ROOT
from tiny_run import TinyRun


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_line_has_batches_loss_and_time_and_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1, 100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    stream = Terminal()
    line = ValidationLine(12, Progress(stream, paced=True))
    line.batch(BatchSums(1, 30.0, 10, 3, 2.0))
    line.batch(BatchSums(2, 10.0, 10, 3, 4.0))
    line.close()
    assert stream.getvalue().split("\r\x1b[K") == [
        "",
        "validation: batch  0/12",
        "validation: batch  1/12  loss 3.0000  ETA 22s",
        "validation: batch  2/12  loss 2.0000  ETA 20s",
        "",
    ]


def test_batches_without_targets_have_no_loss_and_more_batches_than_planned_no_time() -> None:
    stream = Terminal()
    line = ValidationLine(1, Progress(stream))
    line._progress._last_draw = -1.0
    line.batch(BatchSums(2, 0.0, 0, 0, 4.0))
    assert stream.getvalue().endswith("validation: batch 2/1  ETA 0s")


def test_a_pipe_gets_a_line_after_two_seconds_then_every_five(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stream = io.StringIO()
    line = ValidationLine(9, Progress(stream, paced=True))
    for number in range(1, 10):
        now += 1.0
        line.batch(BatchSums(number, 30.0, 10, 3, float(number)))
    line.close()
    assert [text.split()[2] for text in stream.getvalue().splitlines()] == ["2/9", "7/9"]


def test_the_command_shows_the_line_on_standard_error_alone(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=2",))
    run.finished()
    argv = [sys.executable, str(ROOT / "launch.py"), "validate", str(run.workdir)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    piped = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (piped.returncode, piped.stderr) == (0, "")
    master, slave = pty.openpty()
    done = subprocess.run(
        argv, env=env, stdout=subprocess.PIPE, stderr=slave, text=True, timeout=60, check=False
    )
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0 and done.stdout.split(",")[0] == piped.stdout.split(",")[0]
    assert "validation: batch 0/" in shown and shown.endswith("\r\x1b[K")
