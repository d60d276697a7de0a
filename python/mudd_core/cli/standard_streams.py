"""The standard streams of a command: UTF-8 everywhere, and write errors that name the stream."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO, cast

from mudd_core.base.errors import SaveError


def output_error(error: OSError) -> SaveError:
    """The error of a command whose standard output cannot be written."""
    return SaveError(
        f"[output] standard output cannot be written: {error.strerror or error}; free space there or redirect the "
        "output to another file"
    )


class _Named:
    """A standard stream whose write errors are a SaveError; ignored on standard error and on a closed terminal."""

    def __init__(self, stream: TextIO, *, ignores: bool) -> None:
        self._stream, self._ignores = stream, ignores
        self._terminal = stream.isatty()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            if not self._ignores:
                raise
        except OSError as error:
            closed = self._terminal and error.errno == errno.EIO
            if not (self._ignores or closed):
                raise output_error(error) from error

    def write(self, text: str) -> int:
        """Write text; SaveError where standard output cannot take it."""
        with self._checked():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; SaveError where standard output cannot take it."""
        with self._checked():
            self._stream.flush()


@contextlib.contextmanager
def named_streams() -> Iterator[None]:
    """Inside, an error of standard output is a SaveError that names it, and one of standard error is ignored."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Named(sys.stdout, ignores=False))
    sys.stderr = cast(TextIO, _Named(sys.stderr, ignores=True))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def restart_in_utf8() -> None:
    """Start this process again in Python's UTF-8 mode where the locale is not UTF-8: argv, paths and files then agree.

    The process keeps its id, its arguments and its blocked signals.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1" and sys.executable:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def replace_unknown_characters() -> None:
    """Print a replacement for a character that the terminal's encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def flushed(code: int) -> int:
    """Flush both streams; the exit code, which is that of a SaveError where a 0 lost its output."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # else Python fails at exit, with 120
            if code == 0 and not isinstance(error, BrokenPipeError):
                code = SaveError.exit_code
                if stream is sys.stdout:
                    with contextlib.suppress(OSError):
                        print(f"error: {output_error(error)}", file=sys.stderr)
    return code
