"""The line that shows on a terminal how far the command `validate` is."""

from __future__ import annotations

import sys
from typing import TextIO

from mudd_core.base.units import duration
from mudd_core.run.records.events import BatchSums
from mudd_core.run.report.progress import Progress


class ValidationLine:
    """A line on standard error, rewritten in place and removed at the end; nothing where that is no terminal."""

    def __init__(self, batches: int, stream: TextIO | None = None) -> None:
        """batches: at most so many are evaluated."""
        self._batches = batches
        self._nats, self._targets = 0.0, 0
        self._progress = Progress(sys.stderr if stream is None else stream)
        self._progress.step([self._place(0)], logged=False)

    def batch(self, sums: BatchSums) -> None:
        """Draw the line after one more batch."""
        self._nats, self._targets = self._nats + sums.nats, self._targets + sums.targets
        left = sums.seconds / sums.number * max(0, self._batches - sums.number)
        loss = [f"loss {self._nats / self._targets:.4f}"] if self._targets else []
        self._progress.step([self._place(sums.number), *loss, f"ETA {duration(left)}"], logged=False)

    def close(self) -> None:
        """Remove the line."""
        self._progress.wipe()

    def _place(self, done: int) -> str:
        return f"validation: batch {done:>{len(str(self._batches))}}/{self._batches}"
