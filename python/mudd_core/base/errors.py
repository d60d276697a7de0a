"""The exceptions of mudd_core, with the exit code of the command line for each."""

from __future__ import annotations

import errno
import os


class ShownInOneLine(Exception):
    """The base of errors whose message names the remedy: a notebook shows it without the traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows."""
        return [f"{type(self).__name__}: {self}"]


class UserError(ShownInOneLine, ValueError):
    """User input that cannot be used: a missing file, a bad config, another run's work directory (exit 2)."""

    exit_code = 2


class MissingPackageError(UserError):
    """An optional package that is not installed; the message has the command that installs it."""


class NotBuiltError(ShownInOneLine, ImportError):
    """A checkout whose C++ core is not compiled."""


class DataEndError(UserError):
    """The end of the data: there is no further batch."""


class FormatError(ShownInOneLine, RuntimeError):
    """A malformed or damaged file (exit 65).

    Attributes: file, the path; offset, the byte at which the error was found; reason, a message.
    """

    exit_code = 65

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file} at byte {offset}: {reason}")
        self.file, self.offset, self.reason = file, offset, reason


class DivergedError(ShownInOneLine, RuntimeError):
    """Training that produced non-finite losses or gradients in too many successive steps (exit 76)."""

    exit_code = 76


class SaveError(ShownInOneLine, RuntimeError):
    """A failed final save, or another required write that failed (exit 74)."""

    exit_code = 74


class StopRequestedError(ShownInOneLine, RuntimeError):
    """A request to stop the run; its progress is saved (exit 75)."""

    exit_code = 75


class ReportedElsewhereError(RuntimeError):
    """A failure of another rank, which reports it; this rank prints nothing and ends with the same exit code.

    Attributes: rank, the rank that failed; exit_code, its exit code.
    """

    def __init__(self, rank: int, exit_code: int) -> None:
        super().__init__(f"rank {rank} ended the run with code {exit_code}")
        self.rank, self.exit_code = rank, exit_code


def in_one_line(error: BaseException | str) -> str:
    """Return the message of an error in one line, with single spaces."""
    return " ".join(str(error).split())


def is_full_disk(error: BaseException) -> bool:
    """Return True if a write failed for lack of space, which is a SaveError with exit code 74."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(error, OSError) and error.errno in full


_CURES = {
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space within the quota",
}


def write_reason(error: BaseException) -> str:
    """Return the reason why a write failed, with a remedy if one is known, and without the file descriptor."""
    code = error.errno if isinstance(error, OSError) else None
    if code in _CURES:
        return f"{os.strerror(code)}; {_CURES[code]}"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def write_error(path: object, error: OSError) -> SaveError:
    """Return the SaveError for a failed required write to this path."""
    return SaveError(f"[save] {path}: {write_reason(error)}")


_UNMAPPED = (
    "failed to map segment",
    "cannot allocate memory",
)  # messages of the dynamic loader if memory is full


def is_full_memory(error: BaseException) -> bool:
    """Return True if memory ran out, also if the dynamic loader had too little memory for a library."""
    if isinstance(error, ImportError):
        return any(text in str(error).lower() for text in _UNMAPPED)
    return isinstance(error, MemoryError)
