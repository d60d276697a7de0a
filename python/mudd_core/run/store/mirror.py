"""The copy of a work directory in remote storage: steps (manifest last) and logs. Other machines can resume from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.storage import unreachable
from mudd_core.checkpoint.steps import MANIFEST, new_id, step_name, step_of
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.fetch import Fetch, remember
from mudd_core.run.store.original_run import READER_STATE, original_run_text
from mudd_core.run.store.remote_files import RemoteFiles
from mudd_core.run.store.run_folder import (
    BOARD,
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    LEASE,
    LOCK,
    STOP,
    TRACES,
    RunFolder,
)

_OWN = (LOCK, LEASE, STOP)  # files that belong to this machine only
_FOLDERS = (BOARD, TRACES[0])
_PROBE = ".probe-"  # name of a file that a killed start may leave
_WHAT = "[workdir] path"


class Mirror:
    """A run's folder in remote storage. A failed upload raises SaveError, but the local files are complete."""

    def __init__(self, folder: RunFolder, *, writes: bool = True) -> None:
        """Connect to the storage and, if this process writes, test it; raise UserError if that fails."""
        self._run = folder.absolute()
        self.url, self._folder = folder.url, self._run.path
        self._checkpoints = Checkpoints(self._run)
        self._files = RemoteFiles(self.url, _WHAT)
        self._uploaded: dict[int, bytes] = {}  # manifests of the steps in the storage
        self._sizes: dict[str, tuple[int, int]] = {}  # (size, modification time) of each uploaded log
        try:
            names = [name for name in self._files.names("") if not name.startswith(_PROBE)]
        except Exception as error:
            raise unreachable(self.url, _WHAT, error) from None
        if names and CONFIG not in names and READER_STATE in self._files.names(CHECKPOINTS):
            raise UserError(f"{_WHAT}: {original_run_text(self.url)}")
        if names and not {CONFIG, EVALUATIONS} & set(names):
            raise UserError(
                f"{_WHAT}: '{self.url}' holds other files ({', '.join(sorted(names)[:3])}) and no run of mudd_core; "
                "give an empty or new place with --workdir"
            )
        if writes:
            self._try_write()

    def _try_write(self) -> None:
        probe = f"{_PROBE}{new_id()}"
        try:
            self._files.write(b"", probe)
            self._files.remove(probe)
        except Exception as error:
            raise UserError(f"{_WHAT}: '{self.url}' cannot be written: {error}") from None

    def fetch(self, say: Callable[[str], None], at_step: int | None = None) -> None:
        """Download files that this machine lacks, as one transaction (run/store/fetch.py). at_step: as in Fetch.run."""
        remember(self._run)
        try:
            steps = self._remote_steps()
        except Exception as error:
            raise unreachable(self.url, _WHAT, error) from None
        self._uploaded = dict.fromkeys(
            steps, b""
        )  # the next push removes steps that this machine no longer has
        Fetch(self._files, self._run, (*_FOLDERS, *_OWN)).run(steps, say, at_step)

    def _remote_steps(self) -> list[int]:
        names = self._files.names(CHECKPOINTS)
        return [step for step in map(step_of, names) if step is not None]

    def push(self) -> None:
        """Synchronize the storage: upload new steps, then remove deleted ones, then upload the logs."""
        try:
            self._push_logs()
            for step in self._checkpoints.steps():
                self._push_step(step)
            self._push_logs()
            self._drop_missing()
        except SaveError:
            raise
        except Exception as error:
            raise SaveError(
                f"[save] {self.url}: {str(error) or type(error).__name__}; the step is whole in {self._folder}"
            ) from error

    def _push_step(self, step: int) -> None:
        here = self._checkpoints.folder_of(step)
        manifest = (here / MANIFEST).read_bytes()
        if self._uploaded.get(step) == manifest:
            return
        there = f"{CHECKPOINTS}/{step_name(step)}"
        names = self._files.names(there)
        if MANIFEST in names:
            if self._files.read(f"{there}/{MANIFEST}") == manifest:
                self._uploaded[step] = manifest
                return
            self._files.remove(f"{there}/{MANIFEST}")  # a folder without a manifest is not a step
        for file in sorted(here.iterdir()):
            if file.name != MANIFEST:
                self._files.send(file, f"{there}/{file.name}")
        self._files.write(manifest, f"{there}/{MANIFEST}")
        self._uploaded[step] = manifest

    def drop_missing(self) -> None:
        """Remove the remote steps that this machine has deleted; print a warning if that fails."""
        try:
            self._drop_missing()
        except Exception as error:
            reason = f"{self.url}: {str(error) or type(error).__name__}"
            print(f"warning: {reason}; steps that were deleted here are still stored there", file=sys.stderr)

    def _drop_missing(self) -> None:
        """Remove these steps, the manifest of each first."""
        for step in sorted(self._uploaded.keys() - set(self._checkpoints.steps())):
            there = f"{CHECKPOINTS}/{step_name(step)}"
            if MANIFEST in self._files.names(there):
                self._files.remove(f"{there}/{MANIFEST}")
            if self._files.names(there):
                self._files.remove_folder(there)
            del self._uploaded[step]

    def _push_logs(self) -> None:
        files = [file for file in self._folder.iterdir() if file.name not in _OWN]
        for name in _FOLDERS:
            files += list((self._folder / name).rglob("*"))
        for file in sorted(files):
            name = file.relative_to(self._folder).as_posix()
            if file.is_symlink() or not file.is_file() or ".tmp" in file.name:
                continue
            found = os.stat(file)
            mark = (found.st_size, found.st_mtime_ns)
            if self._sizes.get(name) != mark:
                self._files.send(file, name)
                self._sizes[name] = mark

    def push_logs(self) -> None:
        """Upload only the logs, at the end."""
        try:
            self._push_logs()
        except Exception as error:
            raise SaveError(f"[save] {self.url}: {str(error) or type(error).__name__}") from error

    def push_last_logs(self) -> None:
        """Upload the last lines of the logs; print a warning if that fails."""
        try:
            self.push_logs()
        except SaveError as error:
            print(f"warning: {error}", file=sys.stderr)
