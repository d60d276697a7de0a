"""An output file that appears under its name when it is complete, and never replaces another file.

Until then it has no name, so a killed process leaves nothing. File systems without such files (NFS) get a hidden file
instead, which only a kill that cannot be caught leaves.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import SaveError, UserError, write_reason

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OWN_FILES = "/proc/self/fd"


class NewFile(io.RawIOBase):
    """A file that is written from its start. `commit` gives it its name; without it, `close` removes the file.

    Attributes: size, in bytes; fault, the OSError of the first failed write, which libraries may replace.
    """

    def __init__(self, path: Path, place: str) -> None:
        """Create the file. Raise UserError if the path exists, SaveError if the folder cannot be written.

        place: the prefix of messages, such as `[data convert] --to`.
        """
        super().__init__()
        self.path, self._place, self.size = path, place, 0
        self.fault: OSError | None = None
        self._hash = hashlib.sha256()
        self._hidden: Path | None = None
        self._file = -1
        if os.path.lexists(path):
            raise self._exists()
        if not path.parent.exists():
            raise UserError(
                f"{place}: the folder {path.parent} does not exist; create it: "
                f"{shlex.join(['mkdir', '-p', str(path.parent)])}"
            )
        try:
            self._file = self._open()
        except OSError as error:
            raise self.error(error) from error

    def _open(self) -> int:
        if os.path.isdir(_OWN_FILES):
            with contextlib.suppress(OSError):
                return os.open(self.path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        self._hidden = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        return os.open(self._hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """Return the position, which is the end."""
        return self.size

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of the bytes. After a failed write or `close` this does nothing: a library may still flush."""
        rest = memoryview(bytes(data))
        count = len(rest)
        if self.fault is not None or self._file < 0:
            return count
        try:
            while rest:
                done = os.write(self._file, rest)
                self._hash.update(rest[:done])
                self.size += done
                rest = rest[done:]
        except OSError as error:
            self.fault = error
            raise
        return count

    def digest(self) -> str:
        """Return SHA-256 of the bytes that were written."""
        return self._hash.hexdigest()

    def commit(self) -> None:
        """Sync the file and give it its name. Raise UserError if another file got the name first."""
        if self.fault is not None:
            raise self.error(self.fault)
        try:
            os.fsync(self._file)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                source = self._hidden or f"{_OWN_FILES}/{self._file}"
                # With a descriptor of a folder Python calls linkat, which follows the link in /proc.
                os.link(source, self.path, src_dir_fd=folder, follow_symlinks=True)
                os.fsync(folder)
            finally:
                os.close(folder)
        except FileExistsError:
            raise self._exists() from None
        except OSError as error:
            raise self.error(error) from error

    def close(self) -> None:
        """Close the file. Without a commit nothing of it remains."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._hidden is not None:
            self._hidden.unlink(missing_ok=True)
            self._hidden = None
        super().close()

    def error(self, error: OSError) -> SaveError:
        """Return the error of a failed write."""
        return SaveError(f"{self._place}: {self.path}: {write_reason(error)}")

    def _exists(self) -> UserError:
        return UserError(f"{self._place}: {self.path} exists already; remove it or name another file")
