"""Files below a URL, through fsspec. A call without progress within a time limit raises TimeoutError."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mudd_core.base.storage import file_system

T = TypeVar("T")
LIMIT_SECONDS = 300.0  # seconds that any call may take, plus the time of its bytes
SLOWEST = 1 << 20  # slowest accepted upload or download, in bytes per second


class RemoteFiles:
    """The files below one URL. After a timeout, further calls fail at once until the slow call returns."""

    def __init__(self, url: str, argument: str) -> None:
        """Open the storage; raise UserError for an unusable scheme.

        argument: the argument with the URL, for messages.
        """
        self._files, path = file_system(url, argument)
        self._root = path.rstrip("/")
        self._late: threading.Thread | None = None

    def names(self, folder: str) -> list[str]:
        """Return the base names in a folder; empty if it does not exist."""
        whole = self._at(folder)

        def listed() -> list[str]:
            self._files.invalidate_cache()
            try:
                return list(self._files.ls(whole, detail=False))
            except (FileNotFoundError, NotADirectoryError):
                return []

        found = [entry.rstrip("/") for entry in self._limited(listed)]
        return [entry.rpartition("/")[2] for entry in found if entry != whole]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return bytes(self._limited(lambda: self._files.cat_file(self._at(name))))

    def fetch(self, name: str, to: Path) -> None:
        """Download a file."""

        def copied() -> None:
            size = self._files.size(self._at(name)) or 0
            self._allow(size)
            self._files.get_file(self._at(name), str(to))

        self._limited(copied)

    def write(self, data: bytes, name: str) -> None:
        """Create or replace a file."""

        def written() -> None:
            self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(self._at(name), data)

        self._limited(written, len(data))

    def send(self, file: Path, name: str) -> None:
        """Upload a file."""

        def sent() -> None:
            self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(file), self._at(name))

        self._limited(sent, file.stat().st_size)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._limited(lambda: self._files.rm_file(self._at(name)))

    def remove_folder(self, name: str) -> None:
        """Remove a folder with all files in it."""
        self._limited(lambda: self._files.rm(self._at(name), recursive=True))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _allow(self, size: int) -> None:
        self._deadline = time.monotonic() + LIMIT_SECONDS + size / SLOWEST

    def _limited(self, call: Callable[[], T], size: int = 0) -> T:
        """Return or raise the result of a call in a daemon thread, so that the process does not wait for it at exit."""
        if self._late is not None and self._late.is_alive():
            raise TimeoutError("an earlier call has not returned yet")
        returned: list[T] = []
        raised: list[BaseException] = []

        def run() -> None:
            try:
                returned.append(call())
            except BaseException as error:
                raised.append(error)

        begin = time.monotonic()
        self._allow(size)
        worker = threading.Thread(target=run, name="storage", daemon=True)
        worker.start()
        while worker.is_alive() and (left := self._deadline - time.monotonic()) > 0:
            worker.join(left)
        if raised:
            raise raised[0]
        if not returned:
            self._late = worker
            raise TimeoutError(f"no answer within {time.monotonic() - begin:.0f} s")
        return returned[0]
