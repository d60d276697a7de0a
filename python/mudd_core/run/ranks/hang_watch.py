"""Heartbeats of a rank, and the time that other ranks wait for one before they end the job."""

from __future__ import annotations

import contextlib
import statistics
from collections import deque
from collections.abc import Iterator

from mudd_core import _core
from mudd_core.config import Config
from mudd_core.run.ranks.ranks import Ranks

LEAST = 300.0  # shortest timeout in seconds
STEPS = 20  # the timeout is at least this many median steps
# Speeds of a slow disk and a slow core, which must not cause a timeout.
_BYTES_PER_SECOND, _OPERATIONS_PER_SECOND = 10e6, 10e9


class Watch:
    """The watchdog of a run with several ranks, from `begin` to `end`. A single process has none."""

    def __init__(self, ranks: Ranks, seconds: float, expected_step: float) -> None:
        """Create the watch. seconds: dist.hang_timeout; 0: from step times. expected_step: seconds of the first
        step.
        """
        self._comm = ranks.comm if ranks.world > 1 else None
        self._fixed = seconds
        self._times: deque[float] = deque(maxlen=32)
        self._limit = seconds or max(LEAST, STEPS * expected_step)
        self._begun = False

    @property
    def limit(self) -> float:
        """Seconds without a heartbeat after which a rank is regarded as hung."""
        return self._limit

    def begin(self) -> None:
        """Start watching the ranks."""
        if self._comm is not None:
            self._begun = True
            self.phase("idle", 0)
            self._comm.watch(self._limit)

    def end(self) -> None:
        """Stop watching, because ranks may wait for one that writes a sample or is being debugged."""
        if self._comm is not None and self._begun:
            self._begun = False
            self._comm.watch(0)

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        """Watch the ranks while the block runs."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def phase(self, name: str, step: int) -> None:
        """Set the current phase of this rank. This is a heartbeat, and part of the message if a rank fails or hangs."""
        if self._comm is not None:
            self._comm.set_phase(name, step)

    def took_step(self, seconds: float) -> None:
        """Increase the timeout if steps are long."""
        if self._comm is None or self._fixed:
            return
        self._times.append(seconds)
        wanted = STEPS * statistics.median(self._times)
        if self._begun and wanted > self._limit:
            self._limit = 2 * wanted
            self._comm.watch(self._limit)

    @contextlib.contextmanager
    def saving(self, step: int, size: int) -> Iterator[None]:
        """Extend the timeout during a save of `size` bytes."""
        self.phase("save", step)
        longer = self._comm is not None and self._begun and not self._fixed
        if self._comm is not None and longer:
            self._comm.watch(max(self._limit, size / _BYTES_PER_SECOND))
        yield
        self.phase("idle", step)
        if self._comm is not None and longer:
            self._comm.watch(self._limit)


def reader_watch(ranks: Ranks, config: Config, parameters: int) -> Watch:
    """Return the watch of a command that reads a run with a model of `parameters` weights.

    The ranks send a heartbeat for each batch, token or tensor.
    """
    tokens = (config.eval.batch_size or config.train.batch_size) * config.train.seq_len
    slow = 2 * parameters * tokens / (_OPERATIONS_PER_SECOND * _core.num_threads())
    return Watch(ranks, config.dist.hang_timeout, slow / STEPS)
