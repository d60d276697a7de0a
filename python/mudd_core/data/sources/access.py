"""Resolve the names in a config: hub names through the network, URLs of buckets through mounts or local copies.

A copy of files at a URL is `<cache_dir>/sources/<hash of the URL>`; changed files are fetched again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypedDict

from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.paths import url_fault
from mudd_core.base.regular_files import write_text
from mudd_core.base.storage import FileSystem, file_system, is_url, mapped, unreachable
from mudd_core.base.types import JsonObject
from mudd_core.config import Config

_MAGIC = "*?["
_BLOCK = 1 << 20  # bytes


def require_local(name: str, value: str) -> None:
    """Raise UserError if a setting of data is a URL."""
    if (fault := url_fault(value)) is not None:
        raise UserError(f"[data.{name}] {fault}")


def local_root(cache_dir: str) -> Path:
    """Return the folder of token caches that data.cache_dir names; raise UserError for a URL."""
    require_local("cache_dir", cache_dir)
    return Path(cache_dir or "runs/cache").resolve()  # the path may be a link to another disk


def cache_root(config: Config) -> Path:
    """Return the cache folder with storage.map applied; raise UserError for a URL that is not mapped."""
    return local_root(mapped(config.data.cache_dir, config.storage.map))


@dataclass(frozen=True)
class Access:
    """The access to the network. online: fetch hub names. mounts: the value of storage.map. root: the folder of caches.

    again: use existing copies without a check, as a resumed run does.
    """

    online: bool = False
    mounts: str = ""
    root: Path = Path("runs/cache")
    again: bool = False

    @classmethod
    def of(cls, config: Config, *, again: bool = False) -> Access:
        """Return the access of a config."""
        return cls(config.hub.online, config.storage.map, cache_root(config), again)

    def local(self, text: str, argument: str) -> str:
        """Return a path, or the local copies of URLs (several with commas); raise UserError for an unreadable one."""
        if "://" not in text:
            return text
        parts = (
            local_copy(part.strip(), self.mounts, self.root, argument, self.again) for part in text.split(",")
        )
        return ",".join(parts)


LOCAL = Access()


def local_copy(text: str, mounts: str, root: Path, argument: str, again: bool) -> str:
    """Return the local path for a file, folder or glob at a URL after copying it; return other strings unchanged.

    again: a complete copy is used without contacting the storage. Raise UserError if the storage cannot be reached, or
    has nothing at the URL.
    """
    url = mapped(text, mounts)
    if not is_url(url):
        return url
    folder = root / "sources" / hashlib.sha256(url.encode()).hexdigest()[:16]
    note = _note(folder)
    if again and note is not None:
        return str(folder / note["path"])
    files, base = _listed(url, argument)
    known = {} if note is None else note["files"]
    try:
        for name, (_, mark) in files.items():
            if known.get(name) != mark or not (folder / name).is_file():
                _note_file(folder).unlink(missing_ok=True)  # written again when all files are here
        _fetch(url, argument, folder, files, known)
        for name in known.keys() - files.keys():
            (folder / name).unlink(missing_ok=True)
        marks = {name: mark for name, (_, mark) in files.items()}
        write_text(_note_file(folder), json.dumps({"url": url, "path": base, "files": marks}, indent=1))
    except OSError as error:
        raise SaveError(
            f"[data.cache_dir] the copy {folder} of '{url}' cannot be written: {error.strerror or error}"
        ) from None
    return str(folder / base)


class _Note(TypedDict):
    """The content of a copy: its URL, its file's name (empty for a folder), and a fingerprint of each file."""

    url: str
    path: str
    files: dict[str, str]


def _note_file(folder: Path) -> Path:
    """Return the path of the note. It is next to the folder, because all files in the folder are data."""
    return folder.with_name(f"{folder.name}.json")


def _note(folder: Path) -> _Note | None:
    """Return the note of a complete copy; None if there is none."""
    try:
        found: _Note = json.loads(_note_file(folder).read_bytes())
        return found if isinstance(found["files"], dict) and isinstance(found["path"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _listed(url: str, argument: str) -> tuple[dict[str, tuple[str, str]], str]:
    """Return (local name -> remote path and fingerprint; the name of the file or of the folder as a whole)."""
    files, path = file_system(url, argument)
    path = path.rstrip("/")
    try:
        if any(sign in path for sign in _MAGIC):
            root = path[: min(path.find(sign) for sign in _MAGIC if sign in path)].rpartition("/")[0]
            found, base = files.glob(path, detail=True), ""
        elif files.isfile(path):
            root, base = path.rpartition("/")[0], path.rpartition("/")[2]
            found = {path: files.info(path)}
        else:
            root, found, base = path, files.find(path, detail=True), ""
    except FileNotFoundError:
        found, root, base = {}, path, ""
    except Exception as error:
        raise unreachable(url, argument, error) from None
    wanted = {
        name.removeprefix(root).lstrip("/"): (name, _mark(about))
        for name, about in found.items()
        if about.get("type") == "file"
    }
    if not wanted:
        raise UserError(f"{argument}: expected files at '{url}', got none")
    for name in wanted:
        if ".." in name.split("/") or "\0" in name:
            raise UserError(f"{argument}: '{url}' has a file named {name!r}, which cannot be copied")
    return wanted, base


def _mark(about: JsonObject) -> str:
    """Return the size and anything that the storage reports about the content or its time."""
    names = ("ETag", "etag", "md5Hash", "crc32c", "mtime", "LastModified", "updated", "created")
    return ", ".join(
        [str(about.get("size"))] + [f"{name}={about[name]}" for name in names if about.get(name)]
    )


def _fetch(
    url: str, argument: str, folder: Path, wanted: dict[str, tuple[str, str]], known: dict[str, str]
) -> None:
    files, _ = file_system(url, argument)
    for name, (path, mark) in wanted.items():
        target = folder / name
        if known.get(name) == mark and target.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part-{os.getpid()}")
        try:
            with part.open("wb") as out:
                for block in _blocks(files, path, f"{url}/{name}" if len(wanted) > 1 else url, argument):
                    out.write(block)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def _blocks(files: FileSystem, path: str, url: str, argument: str) -> Iterator[bytes]:
    """Yield the content of a file in the storage; raise UserError if it cannot be read."""
    try:
        source = files.open(path, "rb")
    except Exception as error:
        raise unreachable(url, argument, error) from None
    with source:
        while block := _read(source, url, argument):
            yield block


def _read(source: BinaryIO, url: str, argument: str) -> bytes:
    try:
        return bytes(source.read(_BLOCK))
    except Exception as error:
        raise unreachable(url, argument, error, "read") from None
