"""The holder of a work directory in this process, and the lock of `tune`."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_regular
from mudd_core.run.store.fetch import finish_fetch
from mudd_core.run.store.folder_lock import FolderLock, InUseError
from mudd_core.run.store.mirror import Mirror
from mudd_core.run.store.run_folder import RunFolder


class Holder(Protocol):
    """The holder of a work directory. ended: everything is saved, so a later holder may replace this one."""

    ended: bool

    def close(self) -> None:
        """Release the work directory."""


_holders: weakref.WeakValueDictionary[RunFolder, Holder] = weakref.WeakValueDictionary()


def locked(folder: RunFolder, holder: Holder) -> FolderLock:
    """Return the lock of a folder for this holder. A finished or freed holder of this process is replaced."""
    try:
        lock = FolderLock(folder)
    except InUseError as error:
        if not _released(error.folder):
            raise
        lock = FolderLock(folder)
    _holders[lock.folder] = holder
    return lock


def opened(folder: RunFolder, holder: Holder) -> tuple[FolderLock, Mirror | None]:
    """Lock a folder, fetch its missing files if it has a URL, and return the lock and the mirror of that URL."""
    mirror = Mirror(folder) if folder.url else None
    lock = locked(folder, holder)
    try:
        finish_fetch(lock.folder)
        if mirror is not None:
            mirror.fetch(print)
    except BaseException:
        lock.close()
        raise
    return lock, mirror


def _released(folder: RunFolder) -> bool:
    if folder not in _holders:
        return False
    gc.collect()  # a Trainer without references may still be alive in a cycle
    earlier = _holders.get(folder)
    if earlier is not None and not earlier.ended:
        return False
    if earlier is not None:
        earlier.close()
    return True


@contextmanager
def claimed(folder: RunFolder) -> Iterator[None]:
    """Lock the requested config of a folder, if there is one, while the run's own lock may be released.

    Raise UserError while another process has it. On a file system without locks nothing is locked.
    """
    try:
        file = open_regular(folder.asked_file, os.O_RDWR, links=False)
    except FileNotFoundError:
        yield
        return
    try:
        _lock(file, folder)
        yield
    finally:
        os.close(file)  # closing releases the lock


def _lock(file: int, folder: RunFolder) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(
                f"[tune] --workdir: {folder} is in use by another tune command, which is about to "
                "train; wait until it ends, or type another --workdir"
            ) from None
