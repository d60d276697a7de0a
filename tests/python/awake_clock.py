"""Time limits for tests that ignore pauses of the machine or of the process group."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field

PAUSE = 1.0  # seconds between two calls of look(); more than that is a pause


@dataclass
class AwakeClock:
    """Seconds since the start; an interval between two calls of look() adds at most PAUSE."""

    seconds: float = field(default=0.0, init=False)
    _last: float = field(default_factory=time.monotonic, init=False)

    def look(self) -> float:
        """Return the seconds so far; call it many times a second."""
        now = time.monotonic()
        self.seconds += min(now - self._last, PAUSE)
        self._last = now
        return self.seconds


def wait_awake(process: subprocess.Popen[str], timeout: float) -> int:
    """Wait for a process and return its exit code. Raise TimeoutExpired after `timeout` seconds without pauses."""
    clock = AwakeClock()
    while process.poll() is None:
        if clock.look() > timeout:
            raise subprocess.TimeoutExpired(process.args, timeout)
        time.sleep(0.005)
    return process.returncode
