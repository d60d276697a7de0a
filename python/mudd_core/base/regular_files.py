"""Functions that open regular files only, without waiting, and follow links only if the caller allows it.

A FIFO, a socket or a device in place of a file raises OSError; opening it could block for ever. Files of a work
directory are opened with links=False, so a link there never makes a run read, truncate or extend a file elsewhere. A
file with several hard links cannot be opened for writing there either.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from mudd_core.base.errors import SaveError, UserError, write_error

_ALWAYS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
AnyPath = str | bytes | Path


def kind_of(mode: int) -> str:
    """Return the kind of a file for messages, from its st_mode."""
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def shown_kind(found: os.stat_result) -> str:
    """Return the kind of a file for messages; for a regular file with several hard links, also their count."""
    many = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
    return f"one with {found.st_nlink} hard links" if many else kind_of(found.st_mode)


def open_regular(path: AnyPath, flags: int = os.O_RDONLY, *, links: bool = True, mode: int = 0o644) -> int:
    """Open a regular file and return its descriptor. Raise OSError for anything else.

    Truncate the file after this call: O_TRUNC would truncate it before the checks.
    """
    follow = 0 if links else os.O_NOFOLLOW
    try:
        file = os.open(path, flags | _ALWAYS | follow, mode)
    except OSError as error:
        raise _explained(error, path, links) from None
    found = os.fstat(file)
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    if stat.S_ISREG(found.st_mode) and not (writes and not links and found.st_nlink > 1):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, f"expected a regular file, got {shown_kind(found)}", path)


def _explained(error: OSError, path: AnyPath, links: bool) -> OSError:
    """Return the error with a message that names the kind of file at the path: a link, a folder, a socket."""
    try:
        found = (os.stat if links else os.lstat)(path).st_mode
    except OSError:
        return error
    if stat.S_ISREG(found):
        return error
    return OSError(error.errno, f"expected a regular file, got {kind_of(found)}", path)


def open_binary(path: AnyPath, *, links: bool = True) -> BufferedReader:
    """Open a regular file for reading."""
    return os.fdopen(open_regular(path, links=links), "rb")


def read_bytes(path: AnyPath, *, links: bool = True) -> bytes:
    """Return the bytes of a regular file."""
    with open_binary(path, links=links) as file:
        return file.read()


def read_text(path: AnyPath, *, links: bool = True) -> str:
    """Return the text of a regular UTF-8 file. Raise UnicodeDecodeError for other bytes."""
    return read_bytes(path, links=links).decode("utf-8")


def open_to_append(path: AnyPath, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for appending, created if missing. Raise OSError for a link."""
    file = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, links=False)
    return os.fdopen(file, "ab", buffering=buffering)


def write_file(path: Path, data: bytes) -> None:
    """Replace or create a file; after a crash it has either the old or the new content.

    Raise UserError if the path is a link or a FIFO, and SaveError if the write fails.
    """
    from mudd_core import _core

    try:
        found = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFREG
        if not stat.S_ISREG(found):
            what = f"expected a regular file or nothing, got {kind_of(found)}"
            raise UserError(f"[save] {path}: {what}; move it away")
        _core.replace_file(str(path), data)
    except OSError as error:
        if error.errno == errno.ENOENT and not path.parent.exists():
            raise SaveError(
                f"[save] {path}: the folder {path.parent} does not exist; create it: "
                f"{shlex.join(['mkdir', '-p', str(path.parent)])}"
            ) from error
        raise write_error(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Replace or create a file with a string, as UTF-8."""
    write_file(path, text.encode("utf-8"))
