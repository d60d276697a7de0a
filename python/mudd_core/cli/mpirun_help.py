"""What mpirun and its ranks write to standard error, without what follows the reason why the job ends."""

from __future__ import annotations

import re

_RULE = b"-" * 20  # the begin of the line before and after a block
_OURS = (b"error: ", b"[ranks] ", b"[launch] ")  # begins of lines that name the end of a job
_LOST = re.compile(rb"exited on signal (?!2\b|15\b)")  # which launch.py says in a line of its own
_FOR_US = b"[ranks] at the end: "  # for job_check.py, which hears from mpirun which rank is gone
_STOPPED = b"stop requested; "  # by a rank, which mpirun's SIGTERM reaches at the end of any job
# A block that says nothing but that another one follows, and that one of ranks that ended as they were asked to.
_FOLLOWED, _ASKED = b"Primary job  terminated normally", re.compile(rb"Exit code: +75\n")
# Lines that are of no use to anybody: a signal that launch.py sent, and memory of a rank that has ended (ESRCH).
_IDLE = re.compile(rb"mpirun: Forwarding signal \d+ to job|\[[^ ]+:\d+\] Read -1, expected \d+, errno = 3$")
_UNSHOWN = re.compile(
    rb"\[[^ ]+:\d+\] .*ORTE_ERROR_LOG: .*show_help\.c"
)  # a block that mpirun could not write
_BEGINS = (_RULE, *_OURS, _STOPPED, b"mpirun: Forwarding", b"[")  # of lines that decide something


class HelpFilter:
    """A filter of a stream of bytes: `feed` gives what is to be shown of each piece, `rest` what is left at the end."""

    def __init__(self) -> None:
        self._said = False  # a line of ours was shown
        self._line = b""  # the begin of a line that may be a rule
        self._begun = False  # the begin of the line was shown
        self._block: bytes | None = None  # a block that has not ended
        self._empty = b""  # empty lines after a line of ours, which are shown with the line that follows

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown so far; text without an end of line is shown at once, unless it may be a rule."""
        shown = b""
        for piece in data.splitlines(keepends=True):
            self._line += piece
            if self._line.endswith((b"\n", b"\r")):
                shown += self._line if self._begun else self._take(self._line)
                self._line, self._begun = b"", False
            elif self._block is None and (self._begun or not self._may_decide(self._line)):
                shown += self._empty + self._line
                self._line, self._empty, self._begun = b"", b"", True
        return shown

    def rest(self) -> bytes:
        """Return what was held back."""
        held, self._block, line, self._line = self._block or b"", None, self._line, b""
        return held + line

    def _take(self, line: bytes) -> bytes:
        """Return what is shown after a whole line."""
        rule = line.startswith(_RULE)
        if self._block is None:
            if rule:
                self._block = line
                return b""
            return self._shown(line)
        self._block += line
        if not rule:
            return b""
        block, self._block = self._block, None
        hidden = self._said or _FOLLOWED in block or _LOST.search(block) or _ASKED.search(block)
        return b"" if hidden else block

    def _shown(self, line: bytes) -> bytes:
        """Return what is shown for a line of no block, with the empty lines before it."""
        text = line.rstrip()
        if self._said and not text:
            self._empty += line
            return b""
        empty, self._empty = self._empty, b""
        late = self._said and (text.startswith(_STOPPED) or _UNSHOWN.match(text))
        if late or text.startswith(_FOR_US) or _IDLE.match(text):
            return b""
        self._said = self._said or text.startswith(_OURS)
        return empty + line

    def _may_decide(self, line: bytes) -> bool:
        """Whether the begin of a line may become a rule or a line of ours."""
        return any(line.startswith(begin[: len(line)]) for begin in _BEGINS)
