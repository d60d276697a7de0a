"""The work directory of a run: its lock, its run, its files.

One run per work directory: an OS lock (flock) is held for the life of the run and dies with the process. On
file systems without locks a lease file with a heartbeat takes its place, with a warning.
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
from typing import Any

from mudd_core import _core
from mudd_core.base.errors import UserError, write_error
from mudd_core.base.paths import local
from mudd_core.base.regular_files import kind_of, open_regular, shown_kind
from mudd_core.run.store.lease import Lease, content, is_alive
from mudd_core.run.store.metrics import plain
from mudd_core.run.store.original_run import original_run_text, reader_state_of
from mudd_core.run.store.own_code import COPIES

STAGED, UNFINISHED = ".fetch", ".fetch.part"  # of a fetch from a storage (run/store/fetch.py)
EVALUATIONS = "evaluations.jsonl"  # of weights that a command named (run/loop/start_evaluation.py)
BENCHMARK_LOG = "mlperf_compliance.log"
SOURCE_TOKENIZER = "source-tokenizer.json"  # of the weights that a run started from
# Kinds of the entries that a run reads or writes.
_KINDS = {
    stat.S_IFREG: [
        ".lock",
        ".lease",
        "config.json",
        "run.json",
        "metrics.jsonl",
        "events.jsonl",
        EVALUATIONS,
        "log.txt",
        "remote.json",
        "summary.json",
        BENCHMARK_LOG,
        SOURCE_TOKENIZER,
        *COPIES.values(),
    ],
    stat.S_IFDIR: ["checkpoints", "tensorboard", STAGED, UNFINISHED],
}
TRACES = ("plugins", "plugins/profile")  # folders of traces, whose loss ends no run: links alone are refused
# What a run may have left before its config was saved; anything else in a folder without one is somebody's.
_UNSTARTED = ("log.txt", "remote.json", SOURCE_TOKENIZER)
_OWN_NAMES = {".lock", ".lease", "config.json.tmp", "STOP", "remote.json.tmp", UNFINISHED, *_UNSTARTED}


class InUseError(UserError):
    """Another holder has the work directory. path: the folder, resolved."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


class Workdir:
    """A locked work directory. Use as a context manager, or call close()."""

    def __init__(self, path: str | Path) -> None:
        """Make the folder if needed, lock it, refuse one that is foreign (UserError)."""
        self.path = local(path, "[workdir] path").absolute()
        self._holds: Callable[[], object] = _nothing  # called once: releases lock or lease
        self._lease: Lease | None = None  # in place of a lock, where there are none
        self.closed = False
        self._made: list[Path] = []  # folders that this object made, the innermost first
        self._was_empty = False
        try:
            self.path = self.path.resolve()
            if self.path.exists() and not self.path.is_dir():
                raise UserError(f"[workdir] {self.path} is a file; give a folder with --workdir")
            self._refuse_strange()
            self._refuse_foreign()
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._was_empty = not any(self.path.iterdir())
            self._acquire()
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"[workdir] {self.path} cannot be written: {reason}") from error

    config_file = property(lambda self: self.path / "config.json")
    run_file = property(lambda self: self.path / "run.json")
    metrics_file = property(lambda self: self.path / "metrics.jsonl")
    summary_file = property(lambda self: self.path / "summary.json")
    board_folder = property(lambda self: self.path / "tensorboard")
    checkpoint_folder = property(lambda self: self.path / "checkpoints")

    def _refuse_strange(self) -> None:
        """Links could lead a run to files elsewhere, FIFOs could hold it up: nothing of ours may be one."""
        for wanted, names in _KINDS.items():
            for name in names:
                self._refuse(name, partial(_is_no, wanted), kind_of(wanted))
        for name in _KINDS[stat.S_IFREG]:  # a write would reach the file of the other name
            self._refuse(name, lambda found: found.st_nlink > 1, kind_of(stat.S_IFREG))
        for name in TRACES:
            self._refuse(name, lambda found: stat.S_ISLNK(found.st_mode), kind_of(stat.S_IFDIR))
        if (self.path / "STOP").is_dir():
            raise UserError(
                f"[workdir] {self.path / 'STOP'}: expected a file or nothing, got a folder; remove it"
            )

    def _refuse(self, name: str, strange: Callable[[os.stat_result], bool], wanted: str) -> None:
        """UserError for an entry that is there and strange."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (self.path / name).lstat()
            if strange(found):
                raise UserError(
                    f"[workdir] {self.path / name}: expected {wanted}, got {shown_kind(found)}; move it away, or give "
                    "another --workdir"
                )

    def _refuse_foreign(self) -> None:
        ours = (self.config_file, self.path / EVALUATIONS)
        if not self.path.is_dir() or any(file.exists() for file in ours) or (self.path / STAGED).is_dir():
            return
        others = sorted(entry.name for entry in self.path.iterdir() if entry.name not in _OWN_NAMES)
        if others and (theirs := reader_state_of(self.path)) is not None:
            raise UserError(f"[workdir] {original_run_text(self.path, theirs)}")
        if others:
            raise UserError(
                f"[workdir] {self.path} holds other files ({', '.join(others[:3])}) and no run of ours; "
                "give an empty or new folder with --workdir"
            )

    def _acquire(self) -> None:
        file = open_regular(self.path / ".lock", os.O_RDWR | os.O_CREAT, links=False)
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
        if not os.fstat(file).st_nlink:  # its holder has just removed the unused folder
            os.close(file)
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            return
        # At the latest when the object is dropped: a notebook makes the next one in the same process.
        self._holds = weakref.finalize(self, _unlock, file)
        os.ftruncate(file, 0)
        os.pwrite(file, self._who(), 0)

    def _who(self, **more: str) -> bytes:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since, **more}).encode()

    def _in_use(self, holder: str) -> InUseError:
        way_out = "wait for it or give another --workdir"
        try:
            who = json.loads(holder)
            name = f"process {who['pid']} on {who['host']} since {who['since']}"
            if (who["pid"], who["host"]) == (os.getpid(), socket.gethostname()):
                way_out = "that is this very process: close() the Trainer that holds it, or give another work directory"
        except (ValueError, KeyError, TypeError, RecursionError):
            name = "another process"
        return InUseError(f"[workdir] {self.path} is in use by {name}; {way_out}", self.path)

    def _take_lease(self, error: OSError) -> None:
        file = self.path / ".lease"
        if is_alive(file):
            raise self._in_use(content(file).decode("utf-8", "replace"))
        print(
            f"warning: {self.path} is on a file system without locks ({error.strerror}); "
            "a lease file is used instead and renewed while the run lives",
            file=sys.stderr,
        )
        self._lease = Lease(file, self._who(id=secrets.token_hex(8)), self)
        self._holds = self._lease.give_up

    def beat(self) -> None:
        """UserError if the folder is not this object's any more; cheap, call it every step.

        It was closed, or the process was halted so long that another run took the lease.
        """
        if self.closed:
            raise UserError(
                f"[workdir] {self.path} is closed for this Trainer, or a later one of this process took it over; "
                "make a new Trainer"
            )
        if self._lease is not None and (other := self._lease.other()):
            raise self._in_use(other.decode("utf-8", "replace"))

    def close(self) -> None:
        """Release the lock; remove a folder made for a run that never began. SaveError if the disk reports an error."""
        self.closed = True
        self._remove_unused()
        try:
            self._holds()
        except OSError as error:
            raise write_error(self.path / ".lock", error) from error
        finally:
            self._lease = None

    def _remove_unused(self) -> None:
        """Remove the lock and the folders made by this object, if the folder was empty before and holds no more."""
        made, self._made = self._made, []
        was_empty, self._was_empty = self._was_empty, False
        with contextlib.suppress(OSError):  # somebody's files, or a disk that refuses: the folder stays
            if was_empty and {entry.name for entry in self.path.iterdir()} <= {".lock", *_UNSTARTED}:
                for name in _UNSTARTED:
                    (self.path / name).unlink(missing_ok=True)
                (self.path / ".lock").unlink()
                for folder in made:
                    folder.rmdir()

    def __enter__(self) -> Workdir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_no(kind: int, found: os.stat_result) -> bool:
    return stat.S_IFMT(found.st_mode) != kind


def _nothing() -> None:
    pass


def _unlock(file: int) -> None:
    try:
        os.ftruncate(file, 0)
    finally:
        os.close(file)  # closing releases it


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a crash leaves the old file or the new one, never half of it. Raises SaveError.

    Numbers that are not finite become null.
    """
    try:
        _core.replace_file(str(path), (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise write_error(path, error) from error
