"""The log of a soak test: lines on the screen and in a file."""

from __future__ import annotations

from pathlib import Path

END = "end: "  # prefix of the last line of a finished log; a log without it is continued


class Log:
    """A log on the screen and in a file."""

    def __init__(self, path: Path, head: str = "") -> None:
        """Start a log, or continue one with this head and no end. Raise SystemExit if the file is another log."""
        self.earlier: list[str] = path.read_text().splitlines() if path.exists() else []
        if self.earlier and (self.earlier[0] != head or self.earlier[-1].startswith(END)):
            raise SystemExit(f"{path} is there, and a kept log is not overwritten; give --log=FILE")
        self._file = path.open("a")
        if head and not self.earlier:
            self.say(head)

    def has(self, begin: str) -> bool:
        """Return whether a line of an earlier start has this prefix."""
        return any(line.startswith(begin) for line in self.earlier)

    def say(self, text: str) -> None:
        """Print a line and write it to the file."""
        print(text, flush=True)
        print(text, file=self._file, flush=True)
