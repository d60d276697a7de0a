"""The progress line of a run: its fields, and a printer that rewrites it on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from mudd_core.base.show.terminal import columns
from mudd_core.base.show.waiting import Pace
from mudd_core.base.units import duration
from mudd_core.run.records.events import BatchSums, perplexity

# The first fields of the progress line (step, loss, tok/s, ETA), which a narrow terminal shows before all others.
ESSENTIAL = 4
KEPT_EVERY = 10  # a terminal keeps every tenth logged line in its scrollback


def step_fields(row: Mapping[str, Any], steps: int, seconds_left: float, note: str = "") -> list[str]:
    """Return the progress line of an update as fields, the most important first. ETA is 0 after the last step.

    note: one more field after these.
    """
    loss = row["loss"]
    alarms = row.get("expert_alarms", [])
    more = f" and {len(alarms) - 2} more" if len(alarms) > 2 else ""
    return [
        f"step {row['step']:>{len(str(steps))}}/{steps}",
        f"loss {loss:.4f}",
        f"{row['tokens_per_second']:,.0f} tok/s",
        f"ETA {duration(seconds_left if row['step'] != steps else 0)}",
        *([note] if note else []),
        *([f"alarm: {', '.join(alarms[:2])}{more}"] if alarms else []),
        f"{100 * row['peak_share']:.0f}% of peak",
        f"grad {row['grad_norm']:.3g}",
        f"lr {row['lr']:.2e}",
        *([f"margin {row['margin']:.4g}"] if "margin" in row else [f"ppl {perplexity(loss):.4g}"]),
    ]


def fit(fields: Sequence[str], columns: int | None = None) -> str:
    """Return the fields that fit into `columns` (None: all of them) in one line; only the first may be truncated.

    Each of the first ESSENTIAL fields is shown if it fits. The others end at the first that does not fit, so that no
    later field appears and disappears.
    """
    line = fields[0][:columns]
    for number, field in enumerate(fields[1:], 1):
        if columns is None or len(line) + len(field) + 2 <= columns:
            line += "  " + field
        elif number >= ESSENTIAL:
            break
    return line


class Progress:
    """A printer of lines. On a terminal it rewrites the step line in place, and keeps every tenth logged line."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        live: bool = True,
        paced: bool = False,
        details: Callable[[str], int | None] | None = None,
    ) -> None:
        """Store the settings. quiet: print nothing. live: rewrite the line on a terminal. details: prints `detail`.

        paced: elsewhere print unlogged steps too, so that no line is missing for long (base/show/waiting.py).
        """
        self._stream = sys.stdout if stream is None else stream
        self._quiet = quiet
        self._details = details
        self._open_line = False
        self._asked = live and not quiet
        self._live = live and bool(getattr(self._stream, "isatty", lambda: False)())
        self._pace = Pace() if paced and not self._live else None
        self._last_draw = 0.0
        self._logged = 0

    def on_errors(self) -> Progress | None:
        """Return a progress line on standard error, for a run in a program's log style; None if it is no terminal."""
        beside = Progress(sys.stderr)
        return beside if self._asked and beside.live else None

    @property
    def quiet(self) -> bool:
        """True if nothing is printed."""
        return self._quiet

    @property
    def live(self) -> bool:
        """True if the line is rewritten in place; then unlogged steps draw it, too."""
        return self._live

    def start_phase(self) -> None:
        """Start work whose lines are not logged, such as a validation."""
        if self._pace is not None:
            self._pace.start()

    def step(self, fields: Sequence[str], *, logged: bool) -> None:
        """Print the line of a step: on a terminal at most ten times a second, else if it is logged or due."""
        if self._quiet:
            return
        self._logged += logged
        if not self._live:
            if logged or (self._pace is not None and self._pace.is_due()):
                self._write(fit(fields) + "\n")
            return
        now = time.monotonic()
        if logged or now - self._last_draw >= 0.1:
            self._last_draw = now
            keep = logged and self._logged % KEPT_EVERY == 0
            self._write("\r\x1b[K" + fit(fields, columns(self._stream) - 1) + ("\n" if keep else ""))
            self._open_line = not keep

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._quiet:
            return
        self._write(("\r\x1b[K" if self._open_line else "") + text + "\n")
        self._open_line = False

    def detail(self, text: str) -> None:
        """Pass lines to `details`, which decides whether only the log or also the screen gets them."""
        if self._details is not None and not self._quiet:
            self._details(text + "\n")

    def wipe(self) -> None:
        """Remove the rewritten line."""
        if self._open_line:
            self._write("\r\x1b[K")
            self._open_line = False

    def close(self) -> None:
        """End the rewritten line."""
        if self._open_line:
            self._write("\n")
            self._open_line = False

    def _write(self, text: str) -> None:
        if self._pace is not None:
            self._pace.wrote()
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:  # the reader has exited (`| head`); the run continues without printing
            self._quiet = True
        except OSError:  # a full disk: the stream keeps the text in its buffer while it fits
            pass


class ValidationLine:
    """The line of a validation: on a terminal rewritten in place and removed at the end, elsewhere if it is due."""

    def __init__(self, batches: int, progress: Progress) -> None:
        """Draw the line. batches: the largest count of batches to evaluate, 0 if unknown."""
        self._batches = batches
        self._nats, self._targets = 0.0, 0
        self._progress = progress
        progress.start_phase()
        progress.step([self._place(0)], logged=False)

    def batch(self, sums: BatchSums) -> None:
        """Redraw the line after one more batch."""
        self._nats, self._targets = self._nats + sums.nats, self._targets + sums.targets
        left = sums.seconds / sums.number * max(0, self._batches - sums.number)
        loss = [f"loss {self._nats / self._targets:.4f}"] if self._targets else []
        ahead = [f"ETA {duration(left)}"] if self._batches else []
        self._progress.step([self._place(sums.number), *loss, *ahead], logged=False)

    def close(self) -> None:
        """Remove the line."""
        self._progress.wipe()

    def _place(self, done: int) -> str:
        if not self._batches:
            return f"validation: batch {done}"
        return f"validation: batch {done:>{len(str(self._batches))}}/{self._batches}"
