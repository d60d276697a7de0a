"""Exit codes of errors: print an error with its remedy to stderr, and return the code of the process."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback

from mudd_core.base.errors import SaveError, UserError, is_full_disk, is_full_memory
from mudd_core.base.show.printable import visible

_INTERNAL = 70


def exit_code(error: Exception | KeyboardInterrupt) -> int:
    """Print the error that ended a command, and return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        _tell("interrupted")
        return 130
    if isinstance(error, BrokenPipeError):
        return 0
    if is_full_memory(error):
        _tell(
            f"error: not enough memory ({str(error) or 'no reason given'}); raise the limit of "
            "this process (ulimit -v), or use a smaller model or batch"
        )
        return UserError.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        error = _too_long(error)
    code = SaveError.exit_code if is_full_disk(error) else getattr(error, "exit_code", None)
    if code is None and (fault := _fault_in_own_file(error)):
        _tell(f"error: {fault}{_offered(error)}")
        return UserError.exit_code
    if code is None:
        told = f"error: internal error: {type(error).__name__}: {error}"
        _tell(f"{_traceback(error)}{told}{_offered(error)}")
        return _INTERNAL
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        _tell(_traceback(error))
    _tell(f"error: {error}{_offered(error)}")
    return int(code)


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _offered(error: Exception) -> str:
    """Return a line with the command that explains this kind of error; empty if stderr is no terminal."""
    if not sys.stderr.isatty():
        return ""
    from mudd_core.cli.error_codes.lookup import offer

    return f"\n{line}" if (line := offer(error)) else ""


def _fault_in_own_file(error: Exception) -> str | None:
    """Return one line about an error in a user's file; None for any other error."""
    from mudd_core.config.own_files import fault_in_own_file

    return fault_in_own_file(error)


def _too_long(error: OSError) -> UserError:
    """Return the error for a path that is too long."""
    path = str(error.filename)
    return UserError(
        f"[arguments] expected names of at most 255 bytes and paths of at most 4095, got '{path[:40]}...' of "
        f"{len(os.fsencode(path))}; shorten the argument or the value that names it"
    )


def _tell(text: str) -> None:
    with contextlib.suppress(OSError):  # stderr may be on the full disk
        print(visible(text), file=sys.stderr)
