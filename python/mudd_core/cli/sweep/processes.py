"""Child processes that train the runs of a sweep, several at once on separate cores; a stop request reaches all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import IO

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.cli.mpirun_process import end_with_parent

STOPPED = 75  # the exit code of a training that a request stopped
_SHOWN = 2000  # bytes of a failed training's messages


@contextlib.contextmanager
def stop_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call the handler for each signal that requests a stop, inside the block."""
    before = {number: signal.signal(number, handler) for number in _core.stop_signals()}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, signal.SIG_DFL if one is None else one)


@dataclass
class _Running:
    number: int
    slot: int
    process: subprocess.Popen[bytes]
    messages: IO[bytes] | None


class Processes:
    """Runs command lines, at most `jobs` at once. Each gets its own part of the cores if there are several."""

    def __init__(self, jobs: int, command: str = "sweep", *, is_quiet: bool = False) -> None:
        """Raise UserError if there are more jobs than cores.

        command: for messages. is_quiet: do not show the output of a single job either.
        """
        cores = sorted(os.sched_getaffinity(0))
        if jobs > len(cores):
            raise UserError(
                f"[{command}] --jobs: expected at most {len(cores)}, one for each core, got {jobs}"
            )
        self._cores = [set(cores[slot::jobs]) for slot in range(jobs)]
        self._is_shown = jobs == 1 and not is_quiet
        self._running: list[_Running] = []
        self._asked = False

    def run(
        self,
        lines: Sequence[Sequence[str]],
        starts: Callable[[int], None],
        ended: Callable[[int, int, str], None],
    ) -> bool:
        """Run each command line; return False if a stop was requested.

        starts: called with the index before its start. ended: called with the index, the exit code (128 + n for signal
        n) and the last messages, which are empty if they were shown already.
        """
        waiting, free = list(enumerate(lines)), list(range(len(self._cores)))
        with stop_signals(self._on_signal):
            try:
                while self._running or (waiting and not self._asked):
                    while waiting and free and not self._asked:
                        number, line = waiting.pop(0)
                        starts(number)
                        self._running.append(self._start(number, free.pop(0), line))
                    if self._running:
                        one = self._first_ended()
                        self._running.remove(one)
                        free.append(one.slot)
                        code = one.process.returncode
                        ended(one.number, 128 - code if code < 0 else code, _last(one.messages))
            finally:
                for one in self._running:  # only after an error of this process
                    one.process.terminate()
        return not self._asked

    def _start(self, number: int, slot: int, line: Sequence[str]) -> _Running:
        cores, guard = self._cores[slot], end_with_parent()

        def first() -> None:
            guard()
            os.sched_setaffinity(0, cores)

        messages = None if self._is_shown else tempfile.TemporaryFile()  # noqa: SIM115, _last closes it
        process = subprocess.Popen(
            list(line),
            stdin=subprocess.DEVNULL,
            stdout=None if messages is None else subprocess.DEVNULL,
            stderr=messages,
            start_new_session=True,  # a Ctrl-C of the terminal reaches it once, through this process
            preexec_fn=first,
        )
        if self._asked:  # the request came while the process was started
            process.send_signal(signal.SIGTERM)
        return _Running(number, slot, process, messages)

    def _first_ended(self) -> _Running:
        """Wait until a process has ended, and return it."""
        while True:
            for one in self._running:
                if one.process.poll() is not None:
                    return one
            # A child that ends between poll and this call stays waitable, so no end is missed.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._asked = True
        for one in self._running:
            one.process.send_signal(number)


def _last(messages: IO[bytes] | None) -> str:
    """Return the end of the messages, and close their file."""
    if messages is None:
        return ""
    with messages:
        messages.seek(max(0, messages.seek(0, os.SEEK_END) - _SHOWN))
        return messages.read().decode("utf-8", "replace").strip()
