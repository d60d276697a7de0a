"""The disk of the work directory: space, speed, and locks of its file system."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.paths import existing
from mudd_core.base.units import bytes_text
from mudd_core.engine.memory import MIB
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.doctor import Finding, Level, from_message

_LEAST, _COMFORTABLE = 64 * MIB, 1024 * MIB  # a run of tiny.py stores 52 MiB
_BLOCK, _BLOCKS, _SECONDS = (
    4 * MIB,
    8,
    0.5,
)  # for the measurement: maximum number of blocks, and target duration
_SLOW = 20 * MIB  # bytes per second


def disk(place: Path) -> Iterator[Finding]:
    """Yield findings about the disk of a work directory. place: the folder, which may not exist yet."""
    folder = existing(place)
    free = _core.free_space(str(folder))
    mend = "free some space, or choose another disk with --workdir=PATH"
    level = Level.FAULT if free < _LEAST else Level.WARNING if free < _COMFORTABLE else Level.OK
    yield Finding(level, f"{folder} has {bytes_text(free)} free", mend if level != Level.OK else "")
    if level == Level.FAULT:
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".mudd-doctor-", dir=folder) as probe:
            yield from _speed(Path(probe))
            yield from _locks(Path(probe) / "run")
    except OSError as error:
        yield Finding(
            Level.FAULT,
            f"{folder} cannot be written: {error.strerror}",
            "choose a folder that you can write: --workdir=PATH",
        )


def bytes_per_second(folder: Path) -> float:
    """Return the speed of synced writes, as for a save, in bytes/s; raise OSError if they fail."""
    block, written, begin = os.urandom(_BLOCK), 0, time.perf_counter()
    with open(folder / "speed", "wb", buffering=0) as file:
        while written < _BLOCKS and (not written or time.perf_counter() - begin < _SECONDS):
            file.write(block)
            os.fdatasync(file.fileno())
            written += 1
    return written * _BLOCK / max(time.perf_counter() - begin, 1e-9)


def _speed(folder: Path) -> Iterator[Finding]:
    speed = bytes_per_second(folder)
    slow = speed < _SLOW
    yield Finding(
        Level.WARNING if slow else Level.OK,
        f"the disk writes {bytes_text(int(speed))} a second",
        "choose a faster disk with --workdir=PATH, or save less often: train.save_every=N" if slow else "",
    )


def _locks(folder: Path) -> Iterator[Finding]:
    """Yield findings about locks on this file system, by locking the work directory."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), FolderLock(RunFolder(folder)):
            pass
    except UserError as error:
        yield from_message(Level.FAULT, error)
        return
    if said.getvalue():
        yield Finding(
            Level.WARNING,
            "the file system has no locks, so a lease file protects the work directory from a second run",
            "choose a local disk with --workdir=PATH, or mount with locks (Lustre: -o flock)",
        )
    else:
        yield Finding(Level.OK, "the file system has locks")
