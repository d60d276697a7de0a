"""Download a run from remote storage as one transaction: stage and verify all files, then move them into place.

`.fetch.part` is an unfinished download, which the next download removes. `.fetch` is complete. If the process is killed
before its files are moved into place, the next process that locks the work directory moves them. An import is staged in
the same way.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError, UserError, is_full_disk, write_error
from mudd_core.base.members import member
from mudd_core.base.storage import unreachable
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint.steps import MANIFEST, step_folder, step_name
from mudd_core.checkpoint.verify import verify_step
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import object_in, read_object
from mudd_core.run.store.remote_files import RemoteFiles
from mudd_core.run.store.run_folder import (
    CHECKPOINTS,
    CONFIG,
    LOCK,
    REMOTE,
    RUN,
    STAGED,
    UNFINISHED,
    RunFolder,
)

_WHAT = "[workdir] path"


class Fetch:
    """A download of a run from its URL into a work directory, which the caller has locked."""

    def __init__(self, files: RemoteFiles, folder: RunFolder, left_out: tuple[str, ...]) -> None:
        """Prepare a download. left_out: remote entries to skip. Hidden entries are always skipped."""
        self._url, self._files, self._run = folder.url, files, folder
        self._left_out = (CHECKPOINTS, *left_out)
        self._stage = folder.path / UNFINISHED

    def run(self, steps: list[int], say: Callable[[str], None], at_step: int | None = None) -> None:
        """Download the files that this machine lacks: the identity, newer steps, logs.

        steps: the steps in the storage. at_step: also download the newest step up to this one, if this machine has only
        earlier ones. Raise UserError if the storage and the folder have different runs. Steps that do not verify are
        skipped.
        """
        try:
            self._fetch(steps, say, at_step)
        except (UserError, FormatError, SaveError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and (is_full_disk(error) or _is_below(error, self._stage)):
                raise SaveError(
                    f"{_WHAT}: the copy {self._run} of '{self._url}' cannot be written: {error.strerror}"
                ) from None
            raise unreachable(self._url, _WHAT, error) from None
        finally:
            shutil.rmtree(self._stage, ignore_errors=True)

    def _fetch(self, steps: list[int], say: Callable[[str], None], at_step: int | None) -> None:
        names = self._files.names("")
        if CONFIG not in names:
            return
        run_id = self._run_id(names)
        here = Checkpoints(self._run).steps()
        newest = max(here, default=-1)
        shutil.rmtree(self._stage, ignore_errors=True)
        self._stage.mkdir()
        newer = [step for step in sorted(steps, reverse=True) if step > newest]
        fetched = [step for step in newer if self._stage_step(step, run_id, say)]
        # The logs here may be newer than the ones in the storage, unless the storage has newer steps.
        has_newer_logs = bool(fetched) or not self._run.holds_run
        earlier = (step for step in _earlier(steps, here, at_step) if self._stage_step(step, run_id, say))
        fetched += [step for step in [next(earlier, None)] if step is not None]
        if not fetched and not has_newer_logs:
            return
        for name in names if has_newer_logs else ():
            if name not in self._left_out and not name.startswith("."):
                self._files.fetch(name, self._stage / name)
        for name in {CONFIG, RUN} & set(names) if has_newer_logs else ():
            self._object(name, (self._stage / name).read_bytes())
        _sync(self._stage)
        self._stage.rename(self._run.path / STAGED)
        finish_fetch(self._run)
        for step in fetched:
            say(f"fetched step {step} from {self._url}")

    def _object(self, name: str, data: bytes) -> JsonObject:
        return object_in(data, f"{self._url}/{name}")

    def _run_id(self, names: list[str]) -> str | None:
        """Return the id of the run in the storage; None after an interrupted upload."""
        if RUN not in names:
            return None
        theirs = self._object(RUN, self._files.read(RUN))
        found: str = member(theirs, "run_id", str, Path(f"{self._url}/{RUN}"))
        ours = self._run.run_file
        if ours.is_file() and read_object(ours).get("run_id") != found:
            raise UserError(
                f"{_WHAT}: '{self._url}' contains another run than {self._run}; type another --workdir"
            )
        return found

    def _stage_step(self, step: int, run_id: str | None, say: Callable[[str], None]) -> bool:
        there = f"{CHECKPOINTS}/{step_name(step)}"
        names = self._files.names(there)
        if MANIFEST not in names:  # an upload was interrupted
            return False
        work = step_folder(self._stage / CHECKPOINTS, step)
        work.mkdir(parents=True)
        try:
            for name in names:
                self._files.fetch(f"{there}/{name}", work / name)
            verify_step(work, run_id=run_id)
            return True
        except FormatError as error:
            reason = error.reason
        except FileNotFoundError:
            reason = "its files were removed during the fetch"
        say(f"warning: step {step} of {self._url} passed over: {reason}")
        shutil.rmtree(work)
        return False


def _earlier(steps: list[int], here: list[int], at_step: int | None) -> list[int]:
    """Return the steps of the storage, newest first, that are nearer to `at_step` than the ones on this machine.

    steps: in the storage. here: on this machine. Steps after all of these are not listed; None lists no step.
    """
    if at_step is None or not here:
        return []
    before = max((step for step in here if step <= at_step), default=-1)
    return [step for step in sorted(steps, reverse=True) if before < step <= min(at_step, max(here))]


def finish_fetch(run: RunFolder) -> None:
    """Move the files of a complete download into place, with the work directory locked; raise SaveError on failure."""
    folder = run.path
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    stage = folder / STAGED
    if not stage.is_dir():
        return
    try:
        steps = stage / CHECKPOINTS
        for step in sorted(steps.iterdir()) if steps.is_dir() else []:
            run.checkpoint_folder.mkdir(exist_ok=True)
            step.rename(run.checkpoint_folder / step.name)
        for file in sorted(stage.iterdir()):
            if file == steps:
                continue
            if file.is_dir() and (folder / file.name).is_dir():  # os.replace fails for a non-empty folder
                shutil.rmtree(folder / file.name)
            os.replace(file, folder / file.name)
        shutil.rmtree(stage)
    except OSError as error:
        raise write_error(folder / STAGED, error) from error


@contextlib.contextmanager
def staged(run: RunFolder) -> Iterator[RunFolder]:
    """Yield an empty folder; when the block ends, its files appear in the run's folder, all or none.

    The work directory must be locked. Raise SaveError if writing fails.
    """
    finish_fetch(run)
    stage = run.path / UNFINISHED
    try:
        stage.mkdir()
        yield RunFolder(stage)
        (stage / LOCK).unlink(missing_ok=True)
        _sync(stage)
        stage.rename(run.path / STAGED)
    except OSError as error:
        raise write_error(stage, error) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    finish_fetch(run)


def remember(folder: RunFolder) -> None:
    """Record the URL of a copied folder; raise UserError if it is a copy of another URL (gs://b/run and s3://b/run)."""
    note, url = folder.path / REMOTE, folder.url
    if not note.is_file():
        try:
            _core.replace_file(str(note), (json.dumps({"url": url}) + "\n").encode())
        except OSError as error:
            raise write_error(note, error) from error
        return
    known = member(read_object(note), "url", str, note)
    if known != url:
        raise UserError(f"{_WHAT}: {folder} is the copy of '{known}', not of '{url}'; move it away")


def _is_below(error: OSError, folder: Path) -> bool:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    local = error.errno not in (None, errno.ENOENT)
    return local and any(Path(name).is_relative_to(folder) for name in names)


def _sync(folder: Path) -> None:
    """Sync the staged files, so that they survive a power cut."""
    for path in (*folder.rglob("*"), folder):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
