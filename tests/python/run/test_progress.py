"""The progress line: its fields by priority, its length on terminals of any width, and the lines that remain."""

from __future__ import annotations

import errno
import fcntl
import io
import math
import os
import pty
import re
import struct
import termios
import threading

import pytest

from mudd_core.run.report.progress import KEPT_EVERY, Progress, fit, step_fields

ROW = {
    "step": 12,
    "tokens": 3072,
    "loss": 2.0,
    "lr": 1e-3,
    "grad_norm": 0.5,
    "tokens_per_second": 2450.4,
    "peak_share": 0.653,
    "seconds": 9.0,
}


def test_step_line_says_everything() -> None:
    line = fit(step_fields(ROW, 300, 75.0))
    for part in (
        "12/300",
        "loss 2.0000",
        "ppl 7.389",
        "lr 1.00e-03",
        "grad 0.5",
        "2,450 tok/s",
        "65% of peak",
        "1m15s",
    ):
        assert part in line
    assert "nan" in fit(step_fields({**ROW, "loss": math.nan}, 300, math.nan))
    assert "ppl inf" in fit(step_fields({**ROW, "loss": 800.0}, 300, 1.0))
    assert "ETA 0s" in fit(step_fields(ROW, 12, 13.0))  # the last step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_line_is_rewritten_and_files_get_logged_lines_only() -> None:
    plain, live = io.StringIO(), Terminal()
    for stream in (plain, live):
        progress = Progress(stream)
        for step in range(1, 5):
            progress.step([f"step {step}"], logged=step % 2 == 0)
        progress.say("validated")
        progress.close()
    assert plain.getvalue() == "step 2\nstep 4\nvalidated\n"
    text = live.getvalue()
    assert text.count("\n") == 1 and text.endswith("\r\x1b[Kvalidated\n") and "\r\x1b[Kstep 4" in text


def test_nothing_is_written_when_quiet_or_when_nobody_reads() -> None:
    stream = io.StringIO()
    Progress(stream, quiet=True).say("x")
    assert stream.getvalue() == ""

    class Refusing(io.StringIO):
        def __init__(self, error: OSError) -> None:
            super().__init__()
            self.error: OSError | None = error

        def write(self, text: str) -> int:
            if self.error is not None:
                raise self.error
            return super().write(text)

    for error, later in ((BrokenPipeError(), ""), (OSError(errno.ENOSPC, "No space left on device"), "z\n")):
        refusing = Refusing(error)
        progress = Progress(refusing)
        progress.say("x")
        progress.step(["y"], logged=True)
        refusing.error = None  # a full disk may have space again
        progress.say("z")
        assert refusing.getvalue() == later


def shown_by_a_terminal(columns: int, rows: list[dict[str, float]]) -> str:
    """Return the output of Progress for these log entries on a terminal with `columns` columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                pieces.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with open(theirs, "w") as stream:
        progress = Progress(stream)
        for row in rows:
            progress.step(step_fields(row, 5800, 935.0), logged=True)
        progress.close()
    reader.join(10)
    os.close(ours)
    return b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("columns", "seen"),
    [
        (40, "step  120/5800  loss 6.0851  ETA 15m35s"),
        (60, "step  120/5800  loss 6.0851  6,675 tok/s  ETA 15m35s"),
        (80, "step  120/5800  loss 6.0851  6,675 tok/s  ETA 15m35s  65% of peak  grad 1.56"),
        (
            120,
            "step  120/5800  loss 6.0851  6,675 tok/s  ETA 15m35s  65% of peak  grad 1.56  lr 2.00e-03  ppl 439.3",
        ),
    ],
)
def test_a_narrow_terminal_drops_whole_fields_and_keeps_the_eta(columns: int, seen: str) -> None:
    row = {
        **ROW,
        "step": 120,
        "loss": 6.0851,
        "tokens_per_second": 6675.0,
        "grad_norm": 1.56,
        "lr": 2e-3,
    }
    text = shown_by_a_terminal(columns, [row])
    assert text == f"\r\x1b[K{seen}\r\n" and len(seen) < columns


def test_a_lesser_field_is_not_shown_without_those_before_it() -> None:
    fields = ["a", "b" * 30, "c", "d", "e" * 30, "f"]
    assert fit(fields, 20) == "a  c  d" and fit(fields, 50).endswith("c  d")


def test_an_alarm_comes_before_the_lesser_numbers() -> None:
    fields = step_fields({**ROW, "expert_alarms": ["layer 1 expert 1 at 0.01 of even load"]}, 9, 1.0)
    assert fit(fields, 90).endswith("ETA 1s  alarm: layer 1 expert 1 at 0.01 of even load")


def test_every_tenth_logged_line_stays_in_the_scrollback() -> None:
    text = shown_by_a_terminal(80, [{**ROW, "step": step} for step in range(1, 3 * KEPT_EVERY + 4)])
    # The part of each line that remains visible after the terminal has applied the carriage returns.
    kept = [line.rpartition("\x1b[K")[2] for line in text.split("\r\n") if line]
    steps = [int(re.match(r"step +(\d+)/", line)[1]) for line in kept]  # type: ignore[index]
    assert steps == [10, 20, 30, 33]
