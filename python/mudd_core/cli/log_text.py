"""log.txt of a work directory: everything that a run prints on standard output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mudd_core.base.errors import SaveError
from mudd_core.base.regular_files import open_to_append

_REWRITE = "\r\x1b[K"  # begins a line of progress that takes the place of the one before


class _Tee:
    """Standard output with a copy; a rewritten line is copied as it was at last. The disk's errors end nothing."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path
        self._file = open_to_append(path, buffering=0)
        self._line = ""
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write to both."""
        self._copy(text)
        return int(self._stream.write(text))

    def _copy(self, text: str) -> None:
        whole, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            lines = [line.rpartition(_REWRITE)[2] for line in whole.split("\n")]
            self._append("".join(line + "\n" for line in lines))
        self._line = self._line.rpartition(_REWRITE)[2]

    def _append(self, text: str) -> None:
        try:
            data = text.encode("utf-8", "replace")
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            if not self._failed:
                self._failed = True
                with contextlib.suppress(OSError):
                    print(f"warning: {self._path}: {error.strerror}; the run goes on", file=sys.stderr)

    def close(self) -> None:
        """Copy what is left of the last line; SaveError where the system cannot write what it took."""
        if self._line:
            self._append(self._line + "\n")
        try:
            self._file.close()
        except OSError as error:
            raise SaveError(f"[save] {self._path}: {error.strerror}") from error


@contextlib.contextmanager
def copied_output(path: Path) -> Iterator[None]:
    """Inside, standard output also goes to the end of this file; SaveError where it cannot be opened or closed."""
    before = sys.stdout
    try:
        tee = _Tee(before, path)
    except OSError as error:
        raise SaveError(f"[save] {path}: {error.strerror}") from error
    sys.stdout = tee
    try:
        yield
    except BaseException:
        sys.stdout = before
        with contextlib.suppress(SaveError):  # the error that is on its way counts
            tee.close()
        raise
    sys.stdout = before
    tee.close()
