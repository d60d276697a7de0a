"""What mpirun writes to standard error, without its help blocks where a rank has said already why the job ends."""

from __future__ import annotations

import re

_RULE = b"-" * 20  # the begin of the line before and after a block
_OURS = (b"error: ", b"[ranks] ", b"[launch] ")  # begins of lines that name the end of a job
_LOST = re.compile(rb"exited on signal (?!2\b|15\b)")  # which launch.py says in a line of its own
_FOR_US = b"[ranks] at the end: "  # for job_check.py, which hears from mpirun which rank is gone


class HelpFilter:
    """A filter of a stream of bytes: `feed` gives what is to be shown of each piece, `rest` what is left at the end."""

    def __init__(self) -> None:
        self._said = False  # a line of ours was shown
        self._line = b""  # the begin of a line that may be a rule
        self._block: bytes | None = None  # a block that has not ended

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown so far; text without an end of line is shown at once, unless it may be a rule."""
        shown = b""
        for piece in data.splitlines(keepends=True):
            self._line += piece
            if self._line.endswith((b"\n", b"\r")):
                shown += self._take(self._line)
                self._line = b""
            elif self._block is None and not self._may_decide(self._line):
                shown += self._line
                self._line = b""
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
            if line.startswith(_FOR_US):
                return b""
            self._said = self._said or line.startswith(_OURS)
            return line
        self._block += line
        if not rule:
            return b""
        block, self._block = self._block, None
        return b"" if self._said or _LOST.search(block) else block

    def _may_decide(self, line: bytes) -> bool:
        """Whether the begin of a line may become a rule or a line of ours."""
        return any(line.startswith(begin[: len(line)]) for begin in (_RULE, *_OURS))
