"""How far a config lets its names reach: the hub over the network, buckets by their mounts or through local copies.

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
    """UserError where a setting of data is a URL."""
    if (fault := url_fault(value)) is not None:
        raise UserError(f"[data.{name}] {fault}")


def local_root(cache_dir: str) -> Path:
    """The folder of the token caches that data.cache_dir names; UserError for a URL."""
    require_local("cache_dir", cache_dir)
    return Path(cache_dir or "runs/cache").resolve()  # it may be a link to another disk


def cache_root(config: Config) -> Path:
    """The same with storage.map applied; UserError for a URL that stays one."""
    return local_root(mapped(config.data.cache_dir, config.storage.map))


@dataclass(frozen=True)
class Access:
    """online: hub names may be fetched. mounts: storage.map as it is written. root: folder of the caches.

    again: copies that are there are taken as they are, as a run that goes on does.
    """

    online: bool = False
    mounts: str = ""
    root: Path = Path("runs/cache")
    again: bool = False

    @classmethod
    def of(cls, config: Config, *, again: bool = False) -> Access:
        """As the config says."""
        return cls(config.hub.online, config.storage.map, cache_root(config), again)

    def local(self, text: str, argument: str) -> str:
        """A path, or for a URL that of its local copy; several with commas. UserError where it cannot be read."""
        if "://" not in text:
            return text
        parts = (
            local_copy(part.strip(), self.mounts, self.root, argument, self.again) for part in text.split(",")
        )
        return ",".join(parts)


LOCAL = Access()


def local_copy(text: str, mounts: str, root: Path, argument: str, again: bool) -> str:
    """The path of a file, folder or glob at a URL, copied here; other texts as they are.

    again: a whole copy is taken without asking the storage. UserError where the storage cannot be reached, or holds
    nothing there.
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
                _note_file(folder).unlink(missing_ok=True)  # until all are here
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
    """What is copied: a URL, the name of its file or of nothing for a folder, and a mark of each file."""

    url: str
    path: str
    files: dict[str, str]


def _note_file(folder: Path) -> Path:
    """Beside the folder, all of whose files are text; written last."""
    return folder.with_name(f"{folder.name}.json")


def _note(folder: Path) -> _Note | None:
    """What a whole copy is of; None where there is none."""
    try:
        found: _Note = json.loads(_note_file(folder).read_bytes())
        return found if isinstance(found["files"], dict) and isinstance(found["path"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _listed(url: str, argument: str) -> tuple[dict[str, tuple[str, str]], str]:
    """(name here -> path there and a mark of its content; the name of the whole: a file's, or that of the folder)."""
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
            raise UserError(f"{argument}: '{url}' holds a file of the name {name!r}, which cannot be copied")
    return wanted, base


def _mark(about: JsonObject) -> str:
    """Size and whatever the storage says about the content or its time."""
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
    """The content of a file in the storage; UserError where it cannot be read."""
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
