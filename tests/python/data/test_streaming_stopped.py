"""A tokenizing process that a signal has stopped: it is named, waited for, and then killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from mudd_core.base.child import Child
from mudd_core.data.streaming import processes


def until(true: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stopped_process_is_named_continued_and_at_last_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "_LOOK_EVERY", 0.02)
    over, told = threading.Event(), []
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(100)")
    child = Child(script)
    thread = threading.Thread(target=processes.end_stopped, args=([child], over))
    thread.start()
    try:
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: told.append(capsys.readouterr().err) or "".join(told))
        assert (
            f"process {child.pid}, which tokenizes, is stopped by a signal; continue it: kill -CONT"
            in "".join(told)
        )
        os.kill(child.pid, signal.SIGCONT)
        until(lambda: not processes.is_stopped(child.pid))
        time.sleep(0.2)
        assert child.process.poll() is None
        monkeypatch.setattr(processes, "LIMIT", 0.1)
        os.kill(child.pid, signal.SIGSTOP)
        assert child.process.wait(20) == -signal.SIGKILL
    finally:
        over.set()
        thread.join()
        child.end()
