"""How Python opens files here: regular files only, at once, and links only where they may be followed.

A FIFO, a socket or a device in place of a file is an OSError instead of a wait without end. Files of a work directory
are opened with links=False, so that a link in it never makes a run read, cut or extend a file elsewhere. A file with
several hard links is refused there too, where it is opened to be written.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import BinaryIO

from mudd_core.base.errors import SaveError, UserError, write_error

_ALWAYS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
AnyPath = str | bytes | Path


def kind_of(mode: int) -> str:
    """What a file is, by its st_mode, in words."""
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def shown_kind(found: os.stat_result) -> str:
    """What a file is, in words; of a regular file with further names, how many it has."""
    many = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
    return f"one with {found.st_nlink} hard links" if many else kind_of(found.st_mode)


def open_regular(path: AnyPath, flags: int = os.O_RDONLY, *, links: bool = True, mode: int = 0o644) -> int:
    """A descriptor of a regular file; OSError for anything else. Cut the file yourself: O_TRUNC would do it unseen."""
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
    """The error in words that name what is at the path: a link, a folder, a socket."""
    try:
        found = (os.stat if links else os.lstat)(path).st_mode
    except OSError:
        return error
    if stat.S_ISREG(found):
        return error
    return OSError(error.errno, f"expected a regular file, got {kind_of(found)}", path)


def open_binary(path: AnyPath, *, links: bool = True) -> BinaryIO:
    """A regular file to read."""
    return os.fdopen(open_regular(path, links=links), "rb")


def read_bytes(path: AnyPath, *, links: bool = True) -> bytes:
    """All of a regular file."""
    with open_binary(path, links=links) as file:
        return file.read()


def read_text(path: AnyPath, *, links: bool = True) -> str:
    """All of a regular file of UTF-8; UnicodeDecodeError for other bytes."""
    return read_bytes(path, links=links).decode("utf-8")


def open_to_append(path: AnyPath, *, buffering: int = -1) -> BinaryIO:
    """A regular file to write at its end, made if it is missing; a link is refused."""
    file = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, links=False)
    return os.fdopen(file, "ab", buffering=buffering)


def write_file(path: Path, data: bytes) -> None:
    """Replace a file, or make it; a crash leaves the old one or the new one.

    UserError for a link or a FIFO there; SaveError where it cannot be written.
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
                f"[save] {path}: the folder {path.parent} does not exist; make it: "
                f"{shlex.join(['mkdir', '-p', str(path.parent)])}"
            ) from error
        raise write_error(path, error) from error


def write_text(path: Path, text: str) -> None:
    """The same with a string, as UTF-8."""
    write_file(path, text.encode("utf-8"))
