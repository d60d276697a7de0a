"""The profile of some training steps (train.profile), as trace-event JSON for Perfetto and TensorBoard."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mudd_core.base.errors import SaveError
from mudd_core.base.regular_files import open_to_append
from mudd_core.base.types import JsonObject
from mudd_core.config.train import profile_window
from mudd_core.run.store.run_folder import TRACES, RunFolder

NAME = "host.trace.json.gz"
MOST_BYTES = 64 << 20  # bytes of the trace file
_TRACK = {"pid": 1, "tid": 1}  # one thread runs the loop, so the events inside a step are nested in it


class Trace:
    """A writer of the time spans of steps FROM + 1 to TO, with one file for each process.

    The file gets its final name when the last of these steps is done. A failed write ends the trace, not the run.
    """

    def __init__(
        self, window: str, folder: RunFolder | None, engine: Any, say: Callable[[str], None]
    ) -> None:
        """Read the window 'FROM:TO'. Nothing is traced if it is empty or `folder`, the work directory, is None.

        say: prints a line for the user.
        """
        self._window = profile_window(window) if window and folder is not None else (0, 0)
        self._folder, self._engine, self._say = folder, engine, say
        self._file: BinaryIO | None = None
        self._text: gzip.GzipFile | None = None
        self._path = Path()
        self._begin = 0.0
        self._over = self._window == (0, 0)

    @contextlib.contextmanager
    def step(self, done: int) -> Iterator[None]:
        """Record the spans of the update after step `done`: reading the batch, graph nodes, and the optimizer."""
        if self._over or not self._window[0] <= done < self._window[1]:
            yield
            return
        self._open()
        begin = time.perf_counter()
        yield
        self._write(self._of_step(done + 1, begin, time.perf_counter()))

    def reached(self, done: int) -> None:
        """Close the file if step TO is done."""
        if done >= self._window[1]:
            self.close()

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record a span between two traced steps, such as an evaluation or a save."""
        begin = time.perf_counter()
        yield
        if self._text is not None:
            self._write([self._event(name, "loop", begin, time.perf_counter())])

    def close(self) -> None:
        """Rename the file to its final name; later steps are not traced."""
        if self._text is None or self._file is None:
            return
        self._over = True
        self._engine.executor.profile(False)
        with self._failing():
            self._text.write(b'\n],"displayTimeUnit":"ms"}\n')
            self._text.close()
            self._file.close()
            os.replace(self._part, self._path)
            self._say(f"trace of the steps after {self._window[0]} in {self._path}")
        self._text = self._file = None

    @property
    def _part(self) -> Path:
        return self._path.with_name(f".{NAME}.part")

    def _open(self) -> None:
        if self._text is not None:
            return
        assert self._folder is not None
        self._path = self._folder.path / TRACES[-1] / time.strftime("%Y_%m_%d_%H_%M_%S") / NAME
        with self._failing():
            for folder in (self._folder.path / name for name in TRACES):
                if folder.is_symlink():  # created after the check of the work directory
                    raise OSError(errno.ELOOP, "expected a folder, got a link", str(folder))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_to_append(self._part)
            self._text = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0)
            names = {"name": "thread_name", "ph": "M", **_TRACK, "args": {"name": "training loop"}}
            self._text.write(b'{"traceEvents":[\n' + json.dumps(names).encode())
        if self._text is not None:
            self._begin = time.perf_counter()
            self._engine.executor.profile(True, keep_calls=True)

    def _of_step(self, step: int, begin: float, end: float) -> list[JsonObject]:
        """Return the events of a step: the step, the batch before each graph run, the nodes, and the update."""
        whole = self._event(f"step {step}", "step", begin, end)
        whole["args"] = {name: round(seconds, 9) for name, seconds in self._engine.step_seconds.items()}
        events, last, before = [whole], begin, ""
        for label, phase, start, stop in self._engine.executor.take_calls():
            if phase == "forward" != before:
                events.append(self._event("batch", "loop", last, start))
            events.append(self._event(label, phase, start, stop))
            last, before = stop, phase
        events.append(self._event("update", "loop", last, end))
        return events

    def _event(self, name: str, kind: str, begin: float, end: float) -> JsonObject:
        ts, dur = round(1e6 * (begin - self._begin), 3), round(1e6 * (end - begin), 3)
        return {"name": name, "cat": kind, "ph": "X", "ts": ts, "dur": max(0.0, dur), **_TRACK}

    def _write(self, events: list[JsonObject]) -> None:
        if self._text is None or self._file is None:
            return
        with self._failing():
            for event in events:
                self._text.write(b",\n" + json.dumps(event).encode())
        if self._file is not None and self._file.tell() > MOST_BYTES:
            self._say(f"warning: the trace has {MOST_BYTES >> 20} MiB; it ends here")
            self.close()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """End the trace with a warning, but not the run, if the block raises OSError."""
        try:
            yield
        except OSError as error:
            self._say(
                f"warning: {SaveError(f'[train.profile] {self._path}: {error.strerror}')}; there is no trace"
            )
            self._over = True
            if self._text is not None:
                self._engine.executor.profile(False)
            self._text = self._file = None
