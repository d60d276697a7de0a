"""The exceptions of mudd_core, and the exit code that the command line gives each."""

from __future__ import annotations

import errno
import os


class UserError(ValueError):
    """The user's input cannot be used: missing file, bad config, foreign work directory (exit 2)."""

    exit_code = 2


class DataEndError(UserError):
    """The data have no further batch."""


class FormatError(RuntimeError):
    """A file is malformed or damaged (exit 65).

    Attributes: file, the path; offset, the byte where the trouble starts; reason, in words.
    """

    exit_code = 65

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file} at byte {offset}: {reason}")
        self.file, self.offset, self.reason = file, offset, reason


class DivergedError(RuntimeError):
    """Training produced non-finite numbers too often in a row (exit 76)."""

    exit_code = 76


class SaveError(RuntimeError):
    """A final save or another required write failed (exit 74)."""

    exit_code = 74


class StopRequestedError(RuntimeError):
    """The run was asked to stop; what was done is saved (exit 75)."""

    exit_code = 75


class ReportedElsewhereError(RuntimeError):
    """Another rank of the run failed and reports why; this one ends with the same exit code and prints nothing.

    Attributes: rank, that failed; exit_code, its code.
    """

    def __init__(self, rank: int, exit_code: int) -> None:
        super().__init__(f"rank {rank} ended the run with code {exit_code}")
        self.rank, self.exit_code = rank, exit_code


def in_one_line(error: BaseException | str) -> str:
    """The text of an error, its lines and blanks joined by single blanks."""
    return " ".join(str(error).split())


def is_full_disk(error: BaseException) -> bool:
    """Return whether a write failed for lack of space: as a SaveError, exit 74."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(error, OSError) and error.errno in full


_CURES = {
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space within the quota",
}


def write_reason(error: BaseException) -> str:
    """Why a write failed, with the cure where one is known, and without the number of a descriptor."""
    code = error.errno if isinstance(error, OSError) else None
    if code in _CURES:
        return f"{os.strerror(code)}; {_CURES[code]}"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def write_error(path: object, error: OSError) -> SaveError:
    """The error of a required write to this path."""
    return SaveError(f"[save] {path}: {write_reason(error)}")


_UNMAPPED = ("failed to map segment", "cannot allocate memory")  # how the dynamic loader says so


def is_full_memory(error: BaseException) -> bool:
    """Return whether memory ran out, also where the dynamic loader lacked it for a library."""
    if isinstance(error, ImportError):
        return any(text in str(error).lower() for text in _UNMAPPED)
    return isinstance(error, MemoryError)
