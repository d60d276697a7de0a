"""A child process: its output, how it ended, its time limits, and that it does not outlive its parent."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudd_core.base.child import Child
from mudd_core.base.errors import StopRequestedError
from places import HELPERS, ROOT

SCRIPT = """
import os, sys, time
code, delay = int(sys.argv[1]), float(sys.argv[2])
data = sys.stdin.buffer.read()
time.sleep(delay)
sys.stdout.buffer.write(data.upper())
sys.stderr.write("said")
sys.exit(code)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a program that reads all of its input."""
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def child(script: Path) -> Iterator[Child]:
    """Return a process that waits for its input."""
    made = Child(script, ["3", "0"])
    yield made
    made.end()


def test_input_output_errors_and_the_code_arrive(script: Path) -> None:
    child = Child(script, ["3", "0"], hears_errors=True)
    assert child.all_output(b"abc", 60) == (b"ABC", b"said")
    assert (child.code(), child.ending()) == (3, "code 3")


def test_a_process_that_takes_too_long_is_ended(script: Path) -> None:
    child = Child(script, ["0", "100"], hears_errors=True)
    with pytest.raises(TimeoutError):
        child.all_output(b"", 0.1)
    assert child.ending(" (hint)") == "signal SIGKILL (hint)" and not child.is_running()


def test_a_stop_ends_the_wait_for_output(child: Child) -> None:
    def stop() -> None:
        raise StopRequestedError("stop requested")

    with pytest.raises(StopRequestedError):
        child.wait_for_output(stop)
    assert child.is_running()
    child.end()
    assert child.code() == -signal.SIGKILL and child.input.closed and child.output.closed
    child.end()  # has no effect


def test_the_end_of_a_process_is_output(child: Child) -> None:
    child.kill()
    child.wait_for_output(lambda: None)
    assert child.output.read() == b""


MANY = """
import os, resource, sys
sys.path.insert(0, sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open(os.devnull, os.O_RDWR)
while os.dup(null) < 1100:
    pass
from pathlib import Path
from mudd_core.base.child import Child
from typed_terminal import TypedTerminal
child = Child(Path(sys.argv[2]), ["3", "0"])
child.input.close()
child.wait_for_output(lambda: None)
terminal = TypedTerminal([sys.executable, "-c", "print('typed', input())"], os.environ)
terminal.type("words\\n")
terminal.wait(lambda shown: "typed words" in shown)
sys.exit(child.code() + terminal.code())
"""


def test_descriptors_above_1024_are_waited_for(script: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1200:
        pytest.skip("the limit of descriptors is too low here")
    command = [sys.executable, "-c", MANY, str(HELPERS), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 3, done.stderr


def test_a_process_has_its_own_session(child: Child) -> None:
    assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_a_process_ends_with_its_parent(script: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from mudd_core.base.child import Child\n"
        "child = Child(Path(sys.argv[1]), ['0', '0']); print(child.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    parent = subprocess.run(
        [sys.executable, "-c", code, str(script)], stdout=subprocess.PIPE, env=environment, timeout=100
    )
    pid = int(parent.stdout.split()[0])
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.02)
