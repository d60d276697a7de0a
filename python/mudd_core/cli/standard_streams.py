"""The standard streams of a command: UTF-8, write errors that name the stream, and a copy of the output in log.txt."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from mudd_core.base.errors import SaveError, StopRequestedError, write_error
from mudd_core.base.regular_files import open_to_append

if TYPE_CHECKING:
    from mudd_core.run.store.run_folder import RunFolder


def output_error(error: OSError) -> SaveError:
    """Return the error for standard output that cannot be written."""
    return SaveError(
        f"[output] standard output cannot be written: {error.strerror or error}; free space there or redirect the "
        "output to another file"
    )


class _Named:
    """A standard stream that raises SaveError on write errors.

    Errors of stderr and of closed terminals are ignored.
    """

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
        """Write text; raise SaveError if stdout cannot be written."""
        with self._checked():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream; raise SaveError if stdout cannot be written."""
        with self._checked():
            self._stream.flush()


@contextlib.contextmanager
def named_streams() -> Iterator[None]:
    """Inside the block, errors of stdout become SaveErrors with its name, and errors of stderr are ignored."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Named(sys.stdout, ignores=False))
    sys.stderr = cast(TextIO, _Named(sys.stderr, ignores=True))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def restart_in_utf8() -> None:
    """Restart this process in Python's UTF-8 mode if the locale is not UTF-8, so that argv, paths and files agree.

    The process keeps its id, its arguments and its blocked signals.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1" and sys.executable:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def replace_unknown_characters() -> None:
    """Print a replacement for characters that the terminal's encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def flushed(code: int) -> int:
    """Flush both streams and return the exit code. If output was lost, the exit code of SaveError replaces 0."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), stream.fileno()
            )  # otherwise Python would exit with code 120
            if code == 0 and not isinstance(error, BrokenPipeError):
                code = SaveError.exit_code
                if stream is sys.stdout:
                    with contextlib.suppress(OSError):
                        print(f"error: {output_error(error)}", file=sys.stderr)
    return code


_REWRITE = "\r\x1b[K"  # starts a progress line that replaces the previous one


class Tee:
    """Standard output with a copy, which has only the last version of a rewritten line.

    Errors of the copy cause a warning. After an error of standard output, on_loss is called and only the copy is
    written; a closed pipe is not an error.

    Attributes: lost, the error of standard output, or None.
    """

    def __init__(self, stream: TextIO, path: Path, on_loss: Callable[[], None]) -> None:
        self._stream, self._path, self._on_loss = stream, path, on_loss
        self._file = open_to_append(path, buffering=0)
        self._line = ""
        self._failed = self._closed = False
        self.lost: SaveError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text to both."""
        self.copy(text)
        self._pass_on(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush standard output."""
        self._pass_on(self._stream.flush)

    def _pass_on(self, call: Callable[[], object]) -> None:
        if self._closed or self.lost is not None:
            return
        try:
            call()
        except BrokenPipeError:  # the reader has exited, as in `| head`
            self._closed = True
        except (SaveError, OSError) as error:
            self.lost = output_error(error) if isinstance(error, OSError) else error
            self._on_loss()

    def copy(self, text: str) -> None:
        """Write only to the copy."""
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
                    print(f"warning: {self._path}: {error.strerror}; the run continues", file=sys.stderr)

    def close(self) -> None:
        """Copy the rest of the last line; raise SaveError if buffered output cannot be written."""
        if self._line:
            self._append(self._line + "\n")
        try:
            self._file.close()
        except OSError as error:
            raise write_error(self._path, error) from error


@contextlib.contextmanager
def copied_output(folder: RunFolder, on_loss: Callable[[], None] = lambda: None) -> Iterator[Tee]:
    """Inside the block, append standard output to log.txt too.

    Raise SaveError if log.txt cannot be opened or closed. on_loss: called once, if standard output itself cannot be
    written.
    """
    before, path = sys.stdout, folder.output_file
    try:
        tee = Tee(before, path, on_loss)
    except OSError as error:
        raise write_error(path, error) from error
    sys.stdout = tee
    try:
        yield tee
    except BaseException as error:
        sys.stdout = before
        with contextlib.suppress(SaveError):  # the current error takes precedence
            tee.close()
        if tee.lost is not None and isinstance(error, StopRequestedError):
            raise tee.lost from error
        raise
    sys.stdout = before
    tee.flush()
    tee.close()
