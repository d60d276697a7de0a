"""One holder of a work directory at a time, also inside one process: a later one takes over from one that is done."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Protocol

from mudd_core.run.store.workdir import InUseError, Workdir


class Holder(Protocol):
    """What holds a work directory. ended: it saved all it did, and a later holder may have the folder."""

    ended: bool

    def close(self) -> None:
        """Release the work directory."""


_holders: weakref.WeakValueDictionary[Path, Holder] = weakref.WeakValueDictionary()


def locked(path: str | Path, holder: Holder) -> Workdir:
    """The work directory, locked for this holder; taken from an earlier one of this process that is done or dropped."""
    try:
        held = Workdir(path)
    except InUseError as error:
        if not _released(error.path):
            raise
        held = Workdir(path)
    _holders[held.path] = holder
    return held


def _released(path: Path) -> bool:
    if path not in _holders:
        return False
    gc.collect()  # a dropped Trainer may live on in a circle of references
    earlier = _holders.get(path)
    if earlier is not None and not earlier.ended:
        return False
    if earlier is not None:
        earlier.close()
    return True
