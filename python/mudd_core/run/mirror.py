"""The copy of a work directory in a storage: steps with their manifest last, logs, and what a new machine fetches."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from mudd_core import checkpoint
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.storage import file_system, unreachable
from mudd_core.checkpoint.steps import MANIFEST, new_id, step_folder
from mudd_core.checkpoint.verify import verify_sealed

_OWN = (".lock", ".lease", "STOP")  # of this machine alone
_FOLDERS = ("tensorboard", "plugins")
_WHAT = "[workdir] path"


class Mirror:
    """One run's folder in a storage. An upload that fails is a SaveError; the local files are whole all the same."""

    def __init__(self, url: str, folder: Path, *, writes: bool = True) -> None:
        """Connect and, if this process writes, try it; UserError where that cannot be."""
        self.url, self._folder = url.rstrip("/"), folder
        self._files, path = file_system(self.url, _WHAT)
        self._root = path.rstrip("/")
        self._uploaded: dict[int, bytes] = {}  # manifests of the steps there
        self._sizes: dict[str, tuple[int, int]] = {}  # of logs, when they were uploaded
        try:
            names = self._names("")
        except Exception as error:
            raise unreachable(url, _WHAT, error) from None
        if names and "config.json" not in names:
            raise UserError(
                f"{_WHAT}: '{url}' holds other files ({', '.join(sorted(names)[:3])}) and no run of ours; give an "
                "empty or new place with --workdir"
            )
        if writes:
            self._try_write()

    def _try_write(self) -> None:
        probe = f".probe-{new_id()}"
        try:
            self._put_bytes(b"", probe)
            self._files.rm_file(self._at(probe))
        except Exception as error:
            raise UserError(f"{_WHAT}: '{self.url}' cannot be written: {error}") from None

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _names(self, name: str) -> list[str]:
        """Last parts of the names in a folder there; empty where there is none."""
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._at(name), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [
            entry.rstrip("/").rpartition("/")[2] for entry in found if entry.rstrip("/") != self._at(name)
        ]

    def _put_bytes(self, data: bytes, name: str) -> None:
        self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(self._at(name), data)

    def _put(self, file: Path, name: str) -> None:
        self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(file), self._at(name))

    # ---- at a start ---------------------------------------------------------------------------------------

    def fetch(self, say: Callable[[str], None]) -> None:
        """Bring here what the storage has and this machine lacks: the run's identity, steps newer than ours, logs.

        UserError where both hold runs and these are not one. A step that does not verify is passed over.
        """
        try:
            self._fetch(say)
        except (UserError, FormatError, SaveError):
            raise
        except Exception as error:
            raise unreachable(self.url, _WHAT, error) from None

    def _fetch(self, say: Callable[[str], None]) -> None:
        if "config.json" not in self._names(""):
            return
        theirs = (
            json.loads(self._files.cat_file(self._at("run.json"))) if "run.json" in self._names("") else {}
        )
        ours = self._folder / "run.json"
        if ours.is_file() and theirs and json.loads(ours.read_bytes()).get("run_id") != theirs.get("run_id"):
            raise UserError(
                f"{_WHAT}: '{self.url}' holds another run than {self._folder}; give another --workdir"
            )
        local = checkpoint.list_steps(self._folder / "checkpoints")
        newest = max(local, default=-1)
        for step in self._remote_steps():
            self._uploaded[step] = b""  # the next push removes it unless it is here then
        newer = [step for step in sorted(self._remote_steps(), reverse=True) if step > newest]
        fetched = [step for step in newer if self._fetch_step(step, say)]
        if fetched or not (self._folder / "config.json").is_file():
            for name in self._names(""):
                if name not in ("checkpoints", *_FOLDERS, *_OWN) and not name.startswith("."):
                    self._files.get_file(self._at(name), str(self._folder / name))

    def _remote_steps(self) -> list[int]:
        names = self._names("checkpoints")
        return [int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdecimal()]

    def _fetch_step(self, step: int, say: Callable[[str], None]) -> bool:
        there = f"checkpoints/step-{step}"
        names = self._names(there)
        if MANIFEST not in names:  # an upload that was broken off
            return False
        final = step_folder(self._folder / "checkpoints", step)
        work = final.with_name(f"{final.name}.tmp-{new_id()}")
        work.mkdir(parents=True)
        try:
            for name in names:
                self._files.get_file(self._at(f"{there}/{name}"), str(work / name))
            verify_sealed(work)
            work.rename(final)
        except FormatError as error:
            say(f"warning: step {step} of {self.url} passed over: {error.reason}")
            return False
        finally:
            shutil.rmtree(work, ignore_errors=True)
        say(f"fetched step {step} from {self.url}")
        return True

    # ---- behind a save ------------------------------------------------------------------------------------

    def push(self) -> None:
        """Bring the storage up to the local files: steps that it lacks, then steps that are gone, then the logs."""
        try:
            self._push_logs()
            for step in checkpoint.list_steps(self._folder / "checkpoints"):
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
        here = step_folder(self._folder / "checkpoints", step)
        manifest = (here / MANIFEST).read_bytes()
        if self._uploaded.get(step) == manifest:
            return
        there = f"checkpoints/step-{step}"
        names = self._names(there)
        if MANIFEST in names:
            if self._files.cat_file(self._at(f"{there}/{MANIFEST}")) == manifest:
                self._uploaded[step] = manifest
                return
            self._files.rm_file(self._at(f"{there}/{MANIFEST}"))  # from here on it is no step
        for file in sorted(here.iterdir()):
            if file.name != MANIFEST:
                self._put(file, f"{there}/{file.name}")
        self._put_bytes(manifest, f"{there}/{MANIFEST}")
        self._uploaded[step] = manifest

    def drop_missing(self) -> str:
        """Remove the steps that were uploaded and are gone here; what went wrong, if something did."""
        try:
            self._drop_missing()
        except Exception as error:
            return f"{self.url}: {str(error) or type(error).__name__}; steps that are gone here stay there for now"
        return ""

    def _drop_missing(self) -> None:
        """Each manifest goes first."""
        for step in sorted(self._uploaded.keys() - set(checkpoint.list_steps(self._folder / "checkpoints"))):
            there = f"checkpoints/step-{step}"
            if MANIFEST in self._names(there):
                self._files.rm_file(self._at(f"{there}/{MANIFEST}"))
            if self._names(there):
                self._files.rm(self._at(there), recursive=True)
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
                self._put(file, name)
                self._sizes[name] = mark

    def push_logs(self) -> None:
        """The logs alone, as they are at the end."""
        try:
            self._push_logs()
        except Exception as error:
            raise SaveError(f"[save] {self.url}: {str(error) or type(error).__name__}") from error


def remembered(folder: Path, url: str) -> None:
    """Note whose copy a folder is; UserError where it is that of another URL (gs://b/run and s3://b/run)."""
    note = folder / "remote.json"
    if note.is_file():
        known = json.loads(note.read_bytes()).get("url")
        if known != url:
            raise UserError(f"{_WHAT}: {folder} is the copy of '{known}', not of '{url}'; move it away")
        return
    note.write_text(json.dumps({"url": url}) + "\n")
