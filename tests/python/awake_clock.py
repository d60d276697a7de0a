"""Time limits of tests that a pause of the machine or of their process group does not use up."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field

PAUSE = 1.0  # seconds between two looks; any more is a pause


@dataclass
class AwakeClock:
    """Seconds since the start, of which each interval between two looks counts at most PAUSE."""

    seconds: float = field(default=0.0, init=False)
    _last: float = field(default_factory=time.monotonic, init=False)

    def look(self) -> float:
        """Return the seconds so far; call it many times a second."""
        now = time.monotonic()
        self.seconds += min(now - self._last, PAUSE)
        self._last = now
        return self.seconds


def wait_awake(process: subprocess.Popen[str], timeout: float) -> int:
    """Wait for a process and return its exit code; TimeoutExpired after that many seconds without pauses."""
    clock = AwakeClock()
    while process.poll() is None:
        if clock.look() > timeout:
            raise subprocess.TimeoutExpired(process.args, timeout)
        time.sleep(0.005)
    return process.returncode
