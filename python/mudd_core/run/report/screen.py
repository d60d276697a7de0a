"""Standard output and standard error of a run: lines, warnings, and the progress line.

A terminal shows one progress line, which is rewritten in place. Elsewhere each logged step is printed on a new line.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from mudd_core.base.show.printable import beginning_of
from mudd_core.base.show.terminal import columns
from mudd_core.base.types import Json
from mudd_core.base.units import duration
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Difference, TrainConfig
from mudd_core.run.records.events import Rewind, Sample, StepRecord, Summary, Validation, perplexity
from mudd_core.run.records.journal import Listener

# The first fields of the progress line (step, loss, tok/s, ETA), which a narrow terminal shows before all others.
ESSENTIAL = 4
KEPT_EVERY = 10  # a terminal keeps every tenth logged line in its scrollback


def step_fields(row: Mapping[str, Any], steps: int, seconds_left: float) -> list[str]:
    """Return the progress line of an update as fields, the most important first. ETA is 0 after the last step."""
    loss = row["loss"]
    alarms = row.get("expert_alarms", [])
    more = f" and {len(alarms) - 2} more" if len(alarms) > 2 else ""
    return [
        f"step {row['step']:>{len(str(steps))}}/{steps}",
        f"loss {loss:.4f}",
        f"{row['tokens_per_second']:,.0f} tok/s",
        f"ETA {duration(seconds_left if row['step'] != steps else 0)}",
        *([f"alarm: {', '.join(alarms[:2])}{more}"] if alarms else []),
        f"{100 * row['peak_share']:.0f}% of peak",
        f"grad {row['grad_norm']:.3g}",
        f"lr {row['lr']:.2e}",
        f"ppl {perplexity(loss):.4g}",
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
        details: Callable[[str], int | None] | None = None,
    ) -> None:
        """Store the settings. quiet: print nothing. live: rewrite the line on a terminal. details: prints `detail`."""
        self._stream = sys.stdout if stream is None else stream
        self._quiet = quiet
        self._details = details
        self._open_line = False
        self._asked = live and not quiet
        self._live = live and bool(getattr(self._stream, "isatty", lambda: False)())
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

    def step(self, fields: Sequence[str], *, logged: bool) -> None:
        """Print the line of a step: on a terminal at most ten times a second, else only if it is logged."""
        if self._quiet:
            return
        self._logged += logged
        if not self._live:
            if logged:
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
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:  # the reader has exited (`| head`); the run continues without printing
            self._quiet = True
        except OSError:  # a full disk: the stream keeps the text in its buffer while it fits
            pass


class Screen(Listener):
    """A listener that prints. Lines before `opened` are delayed, so that an error at the start is printed alone."""

    def __init__(self, progress: Progress, train: TrainConfig, *, waits: bool) -> None:
        self._warned: set[str] = set()
        self._progress, self._steps = progress, train.steps
        self._beside: Progress | None = (
            None  # the progress line of a run that prints in a program's log style
        )
        self._ours = True  # False if a program's log style prints the steps
        self._waiting: list[Callable[[], None]] | None = [] if waits else None

    def leave_lines_to_style(self) -> None:
        """Print no more steps, since a log style does; a terminal shows the progress line on standard error."""
        self._ours, self._beside = False, self._progress.on_errors()

    def said(self, text: str) -> None:
        self._wipe()
        self._print(partial(self._progress.say, text))

    def warned(self, text: str, step: int | None = None) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._wipe()
            self._print(partial(_warn, text))

    def found(self, checkpoint: Checkpoint) -> None:
        for passed in checkpoint.passed_over:
            self.said(f"warning: {passed}")

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        """Print the step that the run continues from, unless the start lines will do so."""
        if self._waiting is None:
            fields = ", ".join(f"{change.path}={change.asked}" for change in changed)
            more = f" with {fields}" if fields else ""
            self.said(f"resumed from step {checkpoint.step} ({checkpoint.path}){more}")

    def opened(self, lines: Callable[[], tuple[Sequence[str], Sequence[str]]]) -> None:
        """Print the start lines, unless a log style has its own, and then the delayed lines."""
        if self._waiting is None:
            return
        shown, details = ((), ()) if self._progress.quiet else lines()
        waiting, self._waiting = self._waiting, None
        for line in shown:
            self._progress.say(line)
        for line in details:
            self._progress.detail(line)
        for print_line in waiting:
            print_line()

    def shortened(self, train: TrainConfig) -> None:
        self._steps = train.steps

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        fields = step_fields(record.row(), self._steps, seconds_left)
        if self._ours:
            self._progress.step(fields, logged=logged)
        elif self._beside is not None:
            self._beside.step(fields, logged=False)

    def source_lost(self, step: int, place: str, reason: str, retry: int, seconds: float) -> None:
        self.said(f"warning: step {step}: {place}: {reason}; retry {retry} in {seconds:.0f} s")

    def skipped(self, step: int, reason: str, where: str) -> None:
        bad = f"; the first non-finite value is in {where}" if where else ""
        self.said(f"step {step}: {reason}; the update is skipped{bad}")

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        self.said(
            f"step {rewind.from_step + 1}: back to the checkpoint of step {rewind.to_step} (rewind {count} of "
            f"{allowed}); batches {rewind.first_batch} to {rewind.last_batch} are left out"
        )

    def validated(self, result: Validation) -> None:
        if self._ours:
            self.said(
                f"step {result.step}: validation loss {result.val_loss:.4f}, "
                f"{result.text} ({result.seconds:.1f} s)"
            )

    def sampled(self, sample: Sample) -> None:
        if self._ours:
            self.said(f"step {sample.step}: sample {beginning_of(sample.prompt + sample.text)}")

    def not_sampled(self, step: int, reason: str) -> None:
        self.said(f"note: step {step}: no sample: {reason}")

    def save_failed(self, error: Exception) -> None:
        self.said(f"warning: {error}")

    def finished(self, summary: Summary) -> None:
        self._wipe()
        self._progress.close()

    def broke_off(self) -> None:
        self._wipe()

    def _wipe(self) -> None:
        """Remove the progress line on standard error; the next step redraws it."""
        if self._beside is not None:
            self._beside.wipe()

    def _print(self, print_line: Callable[[], None]) -> None:
        if self._waiting is None:
            print_line()
        else:
            self._waiting.append(print_line)


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be a file on a full disk
        print(f"warning: {text}", file=sys.stderr)
