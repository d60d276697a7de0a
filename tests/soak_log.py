"""The log of a soak test: lines for the screen and a file that is kept."""

from __future__ import annotations

from pathlib import Path


class Log:
    """Lines for the screen and the file."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise SystemExit(f"{path} is there, and a kept log is not overwritten; give --log=FILE")
        self._file = path.open("w")

    def say(self, text: str) -> None:
        """Print and keep a line."""
        print(text, flush=True)
        print(text, file=self._file, flush=True)
