"""The claim of `tune` on a folder: it lasts from the lock of the preparation to the end of the training."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_regular
from mudd_core.run.store.run_folder import RunFolder


@contextmanager
def claimed(folder: RunFolder) -> Iterator[None]:
    """Lock the requested config of a folder, if there is one; the run's own lock may be released meanwhile.

    UserError while another process has it. On a file system without locks nothing is claimed.
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
        os.close(file)  # which releases the lock


def _lock(file: int, folder: RunFolder) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(
                f"[tune] --workdir: {folder} is in use by another tune command, which is about to train; wait for it "
                "or give another --workdir"
            ) from None
