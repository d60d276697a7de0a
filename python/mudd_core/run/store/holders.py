"""One holder of a work directory at a time, also inside one process: a later one takes over from one that is done."""

from __future__ import annotations

import gc
import weakref
from typing import Protocol

from mudd_core.run.store.folder_lock import FolderLock, InUseError
from mudd_core.run.store.run_folder import RunFolder


class Holder(Protocol):
    """What holds a work directory. ended: it saved all it did, and a later holder may have the folder."""

    ended: bool

    def close(self) -> None:
        """Release the work directory."""


_holders: weakref.WeakValueDictionary[RunFolder, Holder] = weakref.WeakValueDictionary()


def locked(folder: RunFolder, holder: Holder) -> FolderLock:
    """The lock of a folder for this holder; taken from an earlier one of this process that is done or dropped."""
    try:
        lock = FolderLock(folder)
    except InUseError as error:
        if not _released(error.folder):
            raise
        lock = FolderLock(folder)
    _holders[lock.folder] = holder
    return lock


def _released(folder: RunFolder) -> bool:
    if folder not in _holders:
        return False
    gc.collect()  # a dropped Trainer may live on in a circle of references
    earlier = _holders.get(folder)
    if earlier is not None and not earlier.ended:
        return False
    if earlier is not None:
        earlier.close()
    return True
