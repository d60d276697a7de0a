"""The processes that tokenize for a run. They communicate through pipes and end with the run.

A process that is stopped by SIGSTOP neither answers nor ends; it is noticed and replaced after a while.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from mudd_core.base.child import Child
from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.base.types import Array
from mudd_core.data.formats.format import dropped_note
from mudd_core.data.messages import Head, Message, error_of, receive, send
from mudd_core.data.sources.corpus import Progress
from mudd_core.data.streaming.recipe import Recipe

# Each process has one thread and one arena, so that the number of processes determines the use of cores and memory.
_ENVIRONMENT = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
_PATIENCE = 5.0  # seconds that a stop waits for a process that is still reading
LIMIT = 60.0  # seconds for which a process may be stopped before it is ended and replaced
_LOOK_EVERY = 1.0
_ON_STOP = 5.0  # the limit in seconds after a request to stop the run


class _Inbox:
    """The answers of the processes."""

    def __init__(self) -> None:
        self.there = threading.Condition()
        self.answers: dict[int, Message] = {}
        self.ended: set[int] = set()
        self.forgotten: set[int] = set()


def _listen(pipe: IO[bytes], inbox: _Inbox, number: int) -> None:
    while True:
        try:
            answer = receive(pipe)
        except (OSError, ValueError):  # this process has closed the pipe
            answer = None
        with inbox.there:
            if answer is None:
                inbox.ended.add(number)
            elif answer[0]["ticket"] in inbox.forgotten:
                inbox.forgotten.discard(answer[0]["ticket"])
            else:
                inbox.answers[answer[0]["ticket"]] = answer
            inbox.there.notify_all()
        if answer is None:
            return


def _end(children: list[Child], over: threading.Event) -> None:
    over.set()
    for child in children:
        child.kill()
    for child in children:
        child.end()


class Processes:
    """The `count` processes that read by one recipe. They start when the first message is sent."""

    def __init__(self, count: int, recipe: Recipe, progress: Progress | None = None) -> None:
        """Prepare the processes without starting them. progress: receives a note about dropped bad records."""
        self.count, self.recipe, self._progress = count, recipe, progress
        self._dropped = 0
        self._inbox = _Inbox()
        self._children: list[Child] = []
        self._jobs: dict[int, tuple[int, str, str]] = {}  # by ticket: process, file, and the request as text
        self._tickets = 0
        self._over = threading.Event()
        self._end = weakref.finalize(self, _end, self._children, self._over)

    def submit(self, head: Head, arrays: Sequence[Array] = (), *, file: str, what: str) -> int:
        """Send a message to the next process and return the ticket of its answer. file, what: for error messages."""
        if not self._children:
            self._start()
        ticket = self._tickets
        self._tickets += 1
        number = ticket % self.count
        self._jobs[ticket] = (number, file, what)
        try:
            send(self._children[number].input, {**head, "ticket": ticket}, arrays)
        except OSError:  # the process has died; the caller of result() gets the error
            with self._inbox.there:
                self._inbox.ended.add(number)
        return ticket

    def result(self, ticket: int) -> Message:
        """Wait for an answer and return it, or raise its error: OSError if a file or the process was lost."""
        from mudd_core import _core

        number, file, what = self._jobs[ticket]
        inbox, stop_at = self._inbox, 0.0
        with inbox.there:
            while ticket not in inbox.answers:
                if number in inbox.ended:
                    raise self._died(number, file, what)
                inbox.there.wait(0.5)
                if _core.stop_requested():
                    stop_at = stop_at or time.monotonic() + _PATIENCE
                    if time.monotonic() > stop_at:
                        raise StopRequestedError(f"[data] stop requested while {file} was read ({what})")
            answer = inbox.answers.pop(ticket)
        del self._jobs[ticket]
        if "error" in answer[0]:
            raise _error_of(answer[0], file, what)
        self._count_dropped(answer[0])
        return answer

    def _count_dropped(self, head: Head) -> None:
        """Count dropped records.

        Write a note about the first one, and again each time that the count reaches a power of ten.
        """
        count = self._dropped + head.get("dropped", 0)
        if (
            self._progress is not None
            and count
            and (not self._dropped or len(str(count)) > len(str(self._dropped)))
        ):
            self._progress(dropped_note(count, head["first_dropped"]), 0, 0)
        self._dropped = count

    def forget(self, tickets: Iterable[int]) -> None:
        """Discard the answers to these tickets."""
        with self._inbox.there:
            for ticket in tickets:
                if self._jobs.pop(ticket, None) is None:
                    continue
                if self._inbox.answers.pop(ticket, None) is None:
                    self._inbox.forgotten.add(ticket)

    def close(self) -> None:
        """End the processes; a second call does nothing."""
        self._end()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that were started."""
        return [child.pid for child in self._children]

    def _start(self) -> None:
        threading.Thread(target=end_stopped, args=(self._children, self._over), daemon=True).start()
        for number in range(self.count):
            child = Child("mudd_core.data.streaming.worker", environment=_ENVIRONMENT)
            self._children.append(child)
            threading.Thread(target=_listen, args=(child.output, self._inbox, number), daemon=True).start()
            try:
                send(child.input, *self.recipe.message())
            except OSError:  # the reader thread reports the error
                continue

    def _died(self, number: int, file: str, what: str) -> OSError:
        how = self._children[number].ending()
        place = f"{file} ({what}; process {number} of {self.count} that tokenizes ended with {how})"
        return OSError(errno.EIO, os.strerror(errno.EIO), place)


def _error_of(head: Head, file: str, what: str) -> Exception:
    if head["error"] == "lost":
        # run/loop/lost_source.py waits for this error.
        if head["errno"] in (errno.ENOENT, errno.EIO, errno.ESTALE):
            return OSError(head["errno"], head["text"], head["path"])
        return UserError(f"[data.path] cannot read {head['path']}: {head['text']}")
    return error_of(head, f"{file}, {what}: a process that tokenizes failed")


def is_stopped(pid: int) -> bool:
    """Return whether a process is in the state `stopped`; False if /proc does not show it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


def end_stopped(children: Sequence[Child], ended: threading.Event) -> None:
    """Report each stopped process on stderr once, and end it after LIMIT; return when `ended` is set.

    The run then treats it as a killed process, and starts another.
    """
    from mudd_core import _core

    since: dict[int, float] = {}
    while not ended.wait(_LOOK_EVERY):
        for child in list(children):
            if not child.is_running() or not is_stopped(child.pid):
                since.pop(child.pid, None)
                continue
            if child.pid not in since:
                since[child.pid] = time.monotonic()
                print(
                    f"warning: [data.cache] process {child.pid}, which tokenizes, is stopped by a signal; "
                    f"continue it: kill -CONT {child.pid}; after {LIMIT:.0f} s it is replaced",
                    file=sys.stderr,
                    flush=True,
                )
            limit = min(LIMIT, _ON_STOP) if _core.stop_requested() else LIMIT
            if time.monotonic() - since[child.pid] > limit:
                child.kill()
