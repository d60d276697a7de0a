"""Progress of a run: rates, the remaining time, and the line that shows them.

On a terminal one line is rewritten in place; elsewhere every row of the log gets a line.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from mudd_core.base.show.terminal import columns
from mudd_core.base.units import duration
from mudd_core.run.records.events import perplexity

ESSENTIAL = (
    4  # fields of the progress line that a narrow terminal shows before all others: step, loss, tok/s, ETA
)
KEPT_EVERY = 10  # logged lines from one that stays in a terminal's scrollback to the next


class Clock:
    """Times of steps, validations and saves, and the time that all the rest will take."""

    def __init__(
        self, steps: int, eval_every: int, save_every: int, eval_tokens_per_step_token: float, start: int = 0
    ) -> None:
        """Take the tokens of a validation over those of a step, to guess its time, and train.period_start."""
        self._steps, self._start = steps, start
        self._every = {"eval": eval_every, "save": save_every}
        self._step_seconds = math.nan  # running mean that forgets
        self._last: dict[str, float] = {}
        self._eval_ratio = eval_tokens_per_step_token

    def took_step(self, seconds: float) -> None:
        """Take in the time of one more step."""
        # The first step also plans and touches memory: the second replaces it.
        known = self._step_seconds
        if math.isnan(known) or not self._last.get("warm"):
            self._last["warm"] = 0.0 if math.isnan(known) else 1.0
            self._step_seconds = seconds
        else:
            self._step_seconds = known + 0.05 * (seconds - known)

    def took(self, what: str, seconds: float) -> None:
        """what: 'eval' or 'save'."""
        self._last[what] = seconds

    def _left(self, what: str, step: int) -> int:
        every = self._every[what]
        steps, before = max(self._steps - self._start, 0), max(step - 1 - self._start, 0)
        periodic = steps // every - before // every if every else 0
        at_end = not steps or not every or steps % every != 0
        return periodic + int(at_end)

    def seconds_left(self, step: int) -> float:
        """From behind the update `step` to the end, what is due at this step included; NaN before the first."""
        return self._left_at(step, step, self._step_seconds)

    def seconds_ahead(self, step: int, step_seconds: float) -> float:
        """Return the same before the first update after `step`, with a guess of the seconds of an update."""
        return self._left_at(step, step + 1, step_seconds)

    def _left_at(self, step: int, due: int, step_seconds: float) -> float:
        """due: the first step whose validation and save are still to come."""
        # A forward pass is about a third of a step.
        eval_seconds = self._last.get("eval", self._eval_ratio * step_seconds / 3)
        save_seconds = self._last.get("save", 0.0)
        return (
            (self._steps - step) * step_seconds
            + self._left("eval", due) * eval_seconds
            + self._left("save", due) * save_seconds
        )


def step_fields(row: Mapping[str, Any], steps: int, seconds_left: float) -> list[str]:
    """Return the fields of a training row's progress line, the most important first; ETA is 0 after the last step."""
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
    """Join the fields that fit into `columns` (None: all of them), each whole; the first one is cut if it must be.

    Of the ESSENTIAL ones each that fits is shown; the others end with the first that does not, so that none flickers.
    """
    line = fields[0][:columns]
    for number, field in enumerate(fields[1:], 1):
        if columns is None or len(line) + len(field) + 2 <= columns:
            line += "  " + field
        elif number >= ESSENTIAL:
            break
    return line


class Progress:
    """Prints lines. On a terminal the step line is rewritten in place, and every tenth logged line is kept."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        live: bool = True,
        details: Callable[[str], int | None] | None = None,
    ) -> None:
        """quiet: prints nothing. live: rewrites the line on a terminal. details: takes the lines of `detail`."""
        self._stream = sys.stdout if stream is None else stream
        self._quiet = quiet
        self._details = details
        self._open_line = False
        self._asked = live and not quiet
        self._live = live and bool(getattr(self._stream, "isatty", lambda: False)())
        self._last_draw = 0.0
        self._logged = 0

    def on_errors(self) -> Progress | None:
        """The line on standard error, for a run whose lines are another program's; None where that is no terminal."""
        beside = Progress(sys.stderr)
        return beside if self._asked and beside.live else None

    @property
    def quiet(self) -> bool:
        """True if nothing is printed."""
        return self._quiet

    @property
    def live(self) -> bool:
        """True if the line is rewritten in place: then every step may draw it."""
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
        """A line that stays."""
        if self._quiet:
            return
        self._write(("\r\x1b[K" if self._open_line else "") + text + "\n")
        self._open_line = False

    def detail(self, text: str) -> None:
        """Lines for the log of the run, which the screen has only where the user asks for them."""
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
        except BrokenPipeError:  # nobody reads any more (`| head`): the run goes on
            self._quiet = True
        except OSError:  # a full disk behind it: the text waits in the stream's buffer while it fits there
            pass
