"""Other processes on the machine: measured from /proc/stat, said at the start, in the progress line and by doctor."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launched import launched
from mudd_core.run.ranks.other_load import OtherLoad, competing_text, ticks_of_children
from mudd_core.run.records.events import StepRecord
from mudd_core.run.report.busy import BusyNotes
from tiny_run import TinyRun

CORES = len(os.sched_getaffinity(0))


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keep all cores busy with other processes inside the block."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * CORES)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def stat(file: Path, seconds: float) -> None:
    """Write CPU times of which the first core of this process was busy for so long."""
    cores = sorted(os.sched_getaffinity(0))
    ticks = int(seconds * os.sysconf("SC_CLK_TCK"))
    rows = [f"cpu{number} {ticks if number == cores[0] else 0} 0 0 9 9 0 0 0 0 0" for number in cores]
    file.write_text("\n".join(["cpu 1 1 1 1 1 1 1 1 1 1", *rows, "intr 7"]) + "\n")


def test_the_load_is_the_busy_time_without_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, own = 100.0, 5.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("os.times", lambda: (own, 0.0, 0.0, 0.0, 0.0))
    stat(tmp_path / "stat", 50.0)
    load = OtherLoad(tmp_path / "stat")
    now, own = 110.0, 9.0
    stat(tmp_path / "stat", 59.0)
    assert load.take() == pytest.approx(0.5)  # 9 s busy, 4 s of them by this process
    assert load.take() == 0.0  # too short to measure
    (tmp_path / "stat").write_text("cpu0 nonsense\n")
    now = 120.0
    assert load.take() == 0.0 and OtherLoad(tmp_path / "missing").take() == 0.0


def test_a_load_that_leaves_cores_for_all_threads_is_not_named() -> None:
    assert competing_text(1.6, 2, 2) == "other processes take 1.6 of 2 cores"
    assert competing_text(1.6, 4, 2) == "" and competing_text(0.4, 2, 2) == ""


def test_a_step_below_half_of_the_speed_is_named_once() -> None:
    notes = BusyNotes(alone=True)

    def said(step: int, speed: float) -> str:
        return notes.at_step(StepRecord(step, 1, 1.0, 1.0, 1.0, speed, 0.1, 1.0), logged=True, live=True)

    assert said(1, 50.0) == said(2, 100.0) == said(3, 51.0) == ""
    assert said(4, 49.0) == "slow: below half of the highest speed" == said(5, 49.0)
    notes._until = 0.0
    assert said(6, 10.0) == ""


def test_other_processes_are_named_after_a_slow_step() -> None:
    notes, load = BusyNotes(alone=True), {"others": 0.0}

    def said(speed: float) -> str:
        record = StepRecord(1, 1, 1.0, 1.0, 1.0, speed, 0.1, 1.0, load=load)
        return notes.at_step(record, logged=True, live=False)

    assert (said(100.0), said(40.0)) == ("", "slow: below half of the highest speed")
    load = {"others": float(CORES)}
    assert said(40.0).startswith("busy: other processes take ") and said(40.0) == ""


def test_children_and_grandchildren_are_no_other_processes() -> None:
    spin = "while True: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    before = ticks_of_children(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        while ticks_of_children(os.getpid()) < before + os.sysconf("SC_CLK_TCK"):
            assert child.poll() is None
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_a_run_and_doctor_on_a_busy_machine_name_it(tiny_text: Path, tmp_path: Path) -> None:
    with busy_machine():
        run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=40", "train.log_every=20")).finished()
        done = launched(tmp_path, "doctor")
    assert re.search(r"^note: other processes take [\d.]+ of \d+ cores?, so that steps", run.output, re.M)
    assert len(re.findall(r"^step .* busy: other processes take ", run.output, re.M)) == 1
    assert re.search(r"^cores +warning +other processes take [\d.]+ of \d+ core", done.stdout, re.M), (
        done.stdout
    )
