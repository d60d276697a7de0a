"""The lock of a work directory. It also rejects folders that are no work directories, and unexpected entries.

Only one process may use a work directory: an OS lock (flock) is held during the run and released when the process ends.
On file systems without locks, a lease file with a heartbeat is used instead, with a warning.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import stat
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from mudd_core.base.errors import UserError, write_error
from mudd_core.base.paths import IMPORTED
from mudd_core.base.regular_files import kind_of, open_regular, shown_kind
from mudd_core.run.store import run_folder
from mudd_core.run.store.lease import Lease, content, is_alive
from mudd_core.run.store.original_run import original_run_text, reader_state_of
from mudd_core.run.store.own_code import COPIES
from mudd_core.run.store.run_folder import RunFolder

# The file types of the entries that a run reads or writes.
_KINDS = {
    stat.S_IFREG: [
        run_folder.LOCK,
        run_folder.LEASE,
        run_folder.CONFIG,
        run_folder.RUN,
        run_folder.METRICS,
        run_folder.EVENTS,
        run_folder.SAMPLES,
        run_folder.EVALUATIONS,
        run_folder.OUTPUT,
        run_folder.REMOTE,
        run_folder.SUMMARY,
        run_folder.BENCHMARK_LOG,
        run_folder.SOURCE_TOKENIZER,
        run_folder.ARGUMENTS,
        run_folder.ASKED,
        run_folder.REFERENCE,
        *COPIES.values(),
    ],
    stat.S_IFDIR: [
        run_folder.CHECKPOINTS,
        run_folder.BOARD,
        IMPORTED,
        run_folder.BASE,
        run_folder.ADAPTER,
        run_folder.STAGED,
        run_folder.UNFINISHED,
    ],
}
# Entries that a run may leave before its config is saved. A folder with other entries but without a config is rejected.
_UNSTARTED = (
    run_folder.OUTPUT,
    run_folder.REMOTE,
    run_folder.SOURCE_TOKENIZER,
    run_folder.REFERENCE,
)
OWN_NAMES = {
    run_folder.LOCK,
    run_folder.LEASE,
    run_folder.STOP,
    run_folder.UNFINISHED,
    run_folder.BASE,
    run_folder.ADAPTER,
    run_folder.ARGUMENTS,
    run_folder.ASKED,
    run_folder.REFERENCE,
    # a killed replacement may leave these files
    *(f"{name}.tmp" for name in (run_folder.CONFIG, run_folder.REMOTE)),
    *_UNSTARTED,
}


class InUseError(UserError):
    """The error for a work directory in use. folder: the folder, with its path resolved."""

    def __init__(self, message: str, folder: RunFolder) -> None:
        super().__init__(message)
        self.folder = folder


class FolderLock:
    """The lock of a work directory. Use it as a context manager, or call close(). folder: with its path resolved."""

    def __init__(self, folder: RunFolder) -> None:
        """Create the folder if it is missing, and lock it. Raise UserError for a folder that is no work directory."""
        self.folder = folder.absolute()
        self._holds: Callable[[], object] = _nothing  # releases the lock or the lease; called once
        self._lease: Lease | None = None  # used instead of a lock on file systems without locks
        self.closed = False
        self._made: list[Path] = []  # folders that this object created, innermost first
        self._was_empty = False
        try:
            self.folder = self.folder.resolved()
            path = self.folder.path
            if path.exists() and not path.is_dir():
                raise UserError(f"[workdir] {path} is a file; name a folder: --workdir=FOLDER")
            self._refuse_strange()
            self._refuse_foreign()
            self._made = [one for one in (path, *path.parents) if not one.exists()]
            path.mkdir(parents=True, exist_ok=True)
            self._was_empty = not any(path.iterdir())
            self._acquire()
        except (OSError, RuntimeError) as error:  # RuntimeError is raised for a cycle of links
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"[workdir] {self.folder} cannot be written: {reason}") from error

    def _refuse_strange(self) -> None:
        """Raise UserError if an entry of the run is a link, which may lead elsewhere, or a FIFO, which may block."""
        for wanted, names in _KINDS.items():
            for name in names:
                self._refuse(name, partial(_is_no, wanted), kind_of(wanted))
        for name in _KINDS[stat.S_IFREG]:  # a write would also change the file under its other name
            self._refuse(name, lambda found: found.st_nlink > 1, kind_of(stat.S_IFREG))
        for name in run_folder.TRACES:
            self._refuse(name, lambda found: stat.S_ISLNK(found.st_mode), kind_of(stat.S_IFDIR))
        if self.folder.stop_file.is_dir():
            raise UserError(
                f"[workdir] {self.folder.stop_file}: expected a file or nothing, got a folder; remove it"
            )

    def _refuse(self, name: str, strange: Callable[[os.stat_result], bool], wanted: str) -> None:
        """Raise UserError for an entry of an unexpected kind."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (self.folder.path / name).lstat()
            if strange(found):
                raise UserError(
                    f"[workdir] {self.folder.path / name}: expected {wanted}, got "
                    f"{shown_kind(found)}; move it away, or type another --workdir"
                )

    def _refuse_foreign(self) -> None:
        folder, path = self.folder, self.folder.path
        ours = (folder.config_file, folder.evaluations_file)
        if not path.is_dir() or any(file.exists() for file in ours) or folder.has_staged:
            return
        others = sorted(entry.name for entry in path.iterdir() if entry.name not in OWN_NAMES)
        if others and (theirs := reader_state_of(path)) is not None:
            raise UserError(f"[workdir] {original_run_text(path, theirs)}")
        if others:
            raise UserError(
                f"[workdir] {path} holds other files ({', '.join(others[:3])}) and no run of mudd_core; "
                "give an empty or new folder with --workdir"
            )

    def _acquire(self) -> None:
        file = open_regular(self.folder.path / run_folder.LOCK, os.O_RDWR | os.O_CREAT, links=False)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                holder = os.pread(file, 4096, 0).decode("utf-8", "replace")
                os.close(file)
                raise self._in_use(holder) from None
            os.close(file)
            self._take_lease(error)
            return
        if not os.fstat(file).st_nlink:  # another process has just removed the unused folder
            os.close(file)
            self.folder.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            return
        # Release the lock when the object is garbage-collected, because a notebook creates the next one in the same
        # process.
        self._holds = weakref.finalize(self, _unlock, file)
        os.ftruncate(file, 0)
        os.pwrite(file, self._who(), 0)

    def _who(self, **more: str) -> bytes:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since, **more}).encode()

    def _in_use(self, holder: str) -> InUseError:
        way_out = "wait until it ends, or type another --workdir"
        try:
            who = json.loads(holder)
            name = f"process {who['pid']} on {who['host']} since {who['since']}"
            if (who["pid"], who["host"]) == (os.getpid(), socket.gethostname()):
                way_out = (
                    "that is this process: call close() of the Trainer that uses it, or pass another "
                    "work directory"
                )
        except (ValueError, KeyError, TypeError, RecursionError):
            name = "another process"
        return InUseError(f"[workdir] {self.folder} is in use by {name}; {way_out}", self.folder)

    def _take_lease(self, error: OSError) -> None:
        file = self.folder.path / run_folder.LEASE
        if is_alive(file):
            raise self._in_use(content(file).decode("utf-8", "replace"))
        print(
            f"warning: {self.folder} is on a file system without locks ({error.strerror}); "
            "a lease file is used instead and renewed while the run lives",
            file=sys.stderr,
        )
        self._lease = Lease(file, self._who(id=secrets.token_hex(8)), self)
        self._holds = self._lease.give_up

    def beat(self) -> None:
        """Raise UserError if the folder no longer belongs to this object. This is cheap, so call it in every step.

        In this case the lock was closed, or the process was suspended so long that another run acquired the lease.
        """
        if self.closed:
            raise UserError(
                f"[workdir] {self.folder} is closed for this Trainer, or a later Trainer of this "
                "process uses it; create a new Trainer"
            )
        if self._lease is not None and (other := self._lease.other()):
            raise self._in_use(other.decode("utf-8", "replace"))

    def close(self) -> None:
        """Release the lock, and remove the folder of a run that never started. Raise SaveError on a disk error."""
        self.closed = True
        self._remove_unused()
        try:
            self._holds()
        except OSError as error:
            raise write_error(self.folder.path / run_folder.LOCK, error) from error
        finally:
            self._lease = None

    def _remove_unused(self) -> None:
        """Remove the lock and the folders that this object created, if the folder was empty before and is empty now."""
        made, self._made = self._made, []
        was_empty, self._was_empty = self._was_empty, False
        with contextlib.suppress(
            OSError
        ):  # the folder has other files, or the disk has failed: the folder stays
            path = self.folder.path
            if was_empty and {entry.name for entry in path.iterdir()} <= {run_folder.LOCK, *_UNSTARTED}:
                for name in _UNSTARTED:
                    (path / name).unlink(missing_ok=True)
                (path / run_folder.LOCK).unlink()
                for folder in made:
                    folder.rmdir()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_held(folder: RunFolder) -> bool:
    """Return True if a process has the lock or a current lease of a folder. The folder may be damaged or missing."""
    if is_alive(folder.path / run_folder.LEASE):
        return True
    try:
        file = open_regular(folder.path / run_folder.LOCK, os.O_RDWR, links=False)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(file)
    return False


def _is_no(kind: int, found: os.stat_result) -> bool:
    return stat.S_IFMT(found.st_mode) != kind


def _nothing() -> None:
    pass


def _unlock(file: int) -> None:
    try:
        os.ftruncate(file, 0)
    finally:
        os.close(file)  # closing the file releases the lock
