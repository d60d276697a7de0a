"""URLs: how to recognise one, storage.map, and the fsspec file system of a URL. Nothing here reads a config."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

from mudd_core.base.errors import UserError
from mudd_core.base.packages import needed
from mudd_core.base.types import JsonObject

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "s3a": "s3fs", "hf": "huggingface_hub"}
_BUCKETS = ("gs", "gcs", "s3", "s3a")
_BELOW_A_RUN = 3  # levels of folders below a run, as in checkpoints/590000/items
_MOUNT = "storage.map=PREFIX=FOLDER names the folder that the storage is mounted at"


def is_url(text: str) -> bool:
    """Return True for a string SCHEME://..."""
    return _URL.match(text) is not None


def is_bucket(text: str) -> bool:
    """Return True for the URL of a bucket: gs://, s3://."""
    return scheme_of(text) in _BUCKETS


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, such as gs for gs://bucket/run; "" without one."""
    found = _URL.match(url)
    return found[1].lower() if found else ""


def mapped(text: str, mounts: str, argument: str = "[storage] map") -> str:
    """Replace the longest prefix of storage.map by its folder. Raise UserError for a malformed map."""
    best = ("", "")
    for entry in filter(None, (entry.strip() for entry in mounts.split(","))):
        prefix, equals, folder = entry.partition("=")
        if not equals or not is_url(prefix) or not folder:
            raise UserError(
                f"{argument}: expected URL=FOLDER, or several of them separated by commas, got '{entry}'"
            )
        prefix = prefix.rstrip("/")
        if (text == prefix or text.startswith(prefix + "/")) and len(prefix) > len(best[0]):
            best = (prefix, folder)
    return best[1].rstrip("/") + text[len(best[0]) :] if best[0] else text


def mirror_folder(url: str, root: Path = Path("runs/remote")) -> Path:
    """Return the folder of the run of a work directory URL: runs/remote/<host>/<path>."""
    found = _URL.match(url)
    assert found is not None
    parts = [part for part in found[2].split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in url:
        raise UserError(f"[workdir] path: expected a URL with a host and a path, got '{url}'")
    return root.joinpath(*parts)


def readable(text: str, mounts: str) -> str:
    """Return the mapped string; for the URL of a run that this machine mirrors, the local folder of the run."""
    text = mapped(text, mounts)
    if not is_url(text):
        return text
    place = mirror_folder(text)
    runs = (place, *list(place.parents)[:_BELOW_A_RUN])
    return str(place) if any((run / "config.json").is_file() for run in runs) else text


class FileSystem(Protocol):
    """The methods of fsspec's file systems that this package calls. An entry contains at least type and size."""

    def invalidate_cache(self) -> None: ...
    def ls(self, path: str, detail: bool) -> list[str]: ...
    def glob(self, path: str, *, detail: bool) -> dict[str, JsonObject]: ...
    def find(self, path: str, *, detail: bool) -> dict[str, JsonObject]: ...
    def exists(self, path: str) -> bool: ...
    def isfile(self, path: str) -> bool: ...
    def info(self, path: str) -> JsonObject: ...
    def size(self, path: str) -> int | None: ...
    def open(self, path: str, mode: str) -> BinaryIO: ...
    def cat_file(self, path: str) -> bytes: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...
    def get_file(self, rpath: str, lpath: str) -> None: ...
    def put_file(self, lpath: str, rpath: str) -> None: ...
    def makedirs(self, path: str, exist_ok: bool) -> None: ...
    def rm_file(self, path: str) -> None: ...
    def rm(self, path: str, recursive: bool) -> None: ...


def file_system(url: str, argument: str) -> tuple[FileSystem, str]:
    """Return (file system, path in it) of a URL. Raise UserError for an unknown scheme or a missing package."""
    scheme = scheme_of(url)
    url = scheme + url[len(scheme) :]
    if scheme in ("http", "https") and argument.startswith("[workdir]"):
        raise UserError(
            f"{argument}: expected a folder or the URL of a bucket (gs://, s3://), got '{url}', "
            "which cannot be written"
        )
    if scheme in _PACKAGES:
        try:
            needed(_PACKAGES[scheme], argument, f"for {scheme}:// URLs")
        except UserError as error:
            raise UserError(f"{error}; or {_MOUNT}") from None
    from fsspec.core import url_to_fs

    try:
        found, path = url_to_fs(url)
    except ImportError as error:
        if scheme not in ("http", "https"):
            raise UserError(f"{argument}: {scheme}:// URLs cannot be used: {error}; {_MOUNT}") from None
        name = shlex.quote(PurePosixPath(urlsplit(url).path).name or "FILE")
        raise UserError(
            f"{argument}: expected a file or the URL of a bucket (gs://, s3://), got '{url}'; "
            f"download it, then pass the file {name}: curl -L -o {name} {shlex.quote(url)}"
        ) from None
    except ValueError as error:
        raise UserError(f"{argument}: {scheme}:// URLs cannot be used: {error}; {_MOUNT}") from None
    except Exception as error:  # fsspec raises many types, for missing credentials or for the network
        raise unreachable(url, argument, error) from None
    return found, str(path)


def unreachable(url: str, argument: str, error: BaseException, failed: str = "reached") -> UserError:
    """Return the UserError for a storage that cannot be reached.

    failed: the failed operation, as a participle such as `reached`.
    """
    reason = str(error) or type(error).__name__
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        if secret := os.environ.get(name):
            reason = reason.replace(secret, "***")
    return UserError(f"{argument}: '{url}' cannot be {failed}: {reason[:300]}; {_MOUNT}")
