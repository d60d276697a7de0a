"""Paths that users pass: files and folders of this machine. storage.py has the URLs that some arguments accept."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mudd_core.base.errors import UserError

# Path("gs://bucket/run") drops one of the slashes, hence the form with a single slash.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|([A-Za-z][A-Za-z0-9+.-]+):/")
IMPORTED = "imported"  # folder in a work directory for the files that came with imported weights
_LONGEST_NAME = 255  # bytes; the limit of all common file systems
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5")
_COPY = {
    "gs": "gcloud storage cp -r",
    "s3": "aws s3 cp --recursive",
    "hf": "hf download ... --local-dir",
    "http": "curl -O",
    "https": "curl -O",
}


def hub_cache() -> Path:
    """Return the folder in which huggingface_hub keeps its files: HF_HUB_CACHE, else below HF_HOME."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{cache_home}/huggingface")).expanduser() / "hub"


def hub_place() -> str:
    """Return the name of the Hugging Face hub for messages."""
    return f"HF_HOME ({hub_cache().parent})"


def url_fault(path: str | Path) -> str | None:
    """Return a message about a path that is a URL, with a remedy; None for a path of this machine."""
    found = _URL.match(str(path))
    if found is None or (found[1] is None and isinstance(path, str)):
        return None
    scheme = (found[1] or found[2]).lower()
    if scheme == "file":
        return f"expected a local path, got the URL '{path}'; pass the path without file://"
    copy = f" (`{_COPY[scheme]}`)" if scheme in _COPY else ""
    return (
        f"expected a local path, got the URL '{path}'; copy the files to or from a local folder with "
        f"the program of the storage{copy} and pass that folder, or mount the storage (storage.map)"
    )


def output_folder(path: str | Path, what: str) -> Path:
    """Create the folder if it is missing, and return it.

    Raise UserError if that fails. Call this before work that takes long.
    """
    folder = local(path, what)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{what}: expected a folder that can be written, got {folder}: {error.strerror}"
        ) from error
    return folder


def file_ending(to: str) -> str:
    """Return the ending of a file's name, such as .gguf; empty for a name that ends with a slash, which is a folder."""
    return "" if to.endswith(os.sep) else Path(to).suffix


def folder_to_create(to: str, what: str) -> Path:
    """Return the folder; raise UserError if it is named like a file with weights, without a slash at the end."""
    ending = file_ending(to)
    if ending in _WEIGHTS:
        raise UserError(
            f"{what}: expected a folder, got the name of a file, {to}; leave {ending} out, or add / for a folder of "
            "this name"
        )
    return local(to, what)


def free_folder(folder: Path) -> Path:
    """Return the folder if nothing is there, else the first of NAME-2, NAME-3, ... that does not exist."""
    if not os.path.lexists(folder):
        return folder
    found = re.fullmatch(r"(.+)-(\d{1,4})", folder.name)
    name, number = (found[1], int(found[2])) if found is not None else (folder.name, 1)
    while os.path.lexists(folder.with_name(f"{name}-{number + 1}")):
        number += 1
    return folder.with_name(f"{name}-{number + 1}")


def from_here(path: Path) -> Path:
    """Return an absolute path below the current folder relative to it, for the screen; other paths unchanged."""
    here = Path.cwd()
    return path.relative_to(here) if here in path.parents else path


def existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    folder = folder.absolute()
    return next((one for one in (folder, *folder.parents) if one.is_dir()), Path("/"))


def local(path: str | Path, what: str) -> Path:
    """Return the path. Raise UserError for a URL or an impossible file name, TypeError for a value of another type.

    what: the argument, as [place] name.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{what}: expected a string or a path, got {path!r}")
    fault = url_fault(path)
    if fault is None and "\0" in str(path):
        fault = "expected a path, got one with a null character"
    try:
        if fault is None and any(len(os.fsencode(part)) > _LONGEST_NAME for part in Path(path).parts):
            fault = f"expected names of at most {_LONGEST_NAME} bytes, got '{str(path)[:60]}...'"
    except UnicodeEncodeError:
        fault = f"expected a path of valid Unicode, got {str(path)[:60]!a} with an unpaired surrogate"
    if fault is not None:
        raise UserError(f"{what}: {fault}")
    return Path(path)
