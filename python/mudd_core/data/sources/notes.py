"""Notes about the source files of a cache when it was built, so that an edit in the middle of a file is noticed.

A cache is named by the size and the first and last bytes of its files, which are quick to read. The file
`sources-<cache>.json` next to it has the time and SHA-256 of each; a file with another time is hashed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from mudd_core.base.errors import FormatError
from mudd_core.base.regular_files import open_binary, read_bytes


class SourceNote(TypedDict):
    """A file: its size in bytes, its times in nanoseconds, and the SHA-256 of its content."""

    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


def note_of(path: Path) -> SourceNote:
    """Read a whole file and return its note."""
    state = path.stat()
    with open_binary(path) as file:
        digest = hashlib.file_digest(file, "sha256")
    return SourceNote(
        size=state.st_size, mtime_ns=state.st_mtime_ns, ctime_ns=state.st_ctime_ns, sha256=digest.hexdigest()
    )


def keep_notes(root: Path, cache: str, notes: Sequence[SourceNote]) -> None:
    """Write the notes of the files of a cache, in their order."""
    from mudd_core import _core

    text = json.dumps([*notes])
    with contextlib.suppress(OSError):  # without the notes, only an edit in the middle goes unnoticed
        _core.replace_file(str(_file(root, cache)), text.encode())


def drop_notes(root: Path, cache: str) -> None:
    """Delete the notes of a cache whose build has failed."""
    _file(root, cache).unlink(missing_ok=True)


def require_unchanged(root: Path, cache: str, files: Sequence[Path]) -> None:
    """Raise FormatError if a file has changed since the cache was built; caches of earlier versions have no notes."""
    notes = _read(_file(root, cache))
    if len(notes) != len(files):
        return
    found = [_seen(note, path, root / cache) for note, path in zip(notes, files, strict=True)]
    if found != notes:
        keep_notes(root, cache, found)


def hashes_of(root: Path, cache: str) -> list[str]:
    """Return the SHA-256 of each file that a cache was built from, in order; an empty list without notes."""
    return [note["sha256"] for note in _read(_file(root, cache))]


def are_changed(root: Path, cache: str, files: Sequence[Path]) -> bool:
    """Return whether the content of files has changed since a cache was built; False if it has no notes."""
    notes = _read(_file(root, cache))
    if not notes or len(notes) != len(files):
        return bool(notes)
    return any(
        not _same_times(note, path) and note_of(path)["sha256"] != note["sha256"]
        for note, path in zip(notes, files, strict=True)
    )


def _same_times(note: SourceNote, path: Path) -> bool:
    state = path.stat()
    times = (state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return (note["size"], note["mtime_ns"], note["ctime_ns"]) == times


def _seen(note: SourceNote, path: Path, cache: Path) -> SourceNote:
    """Return the current note of a file; raise FormatError if its content has changed."""
    if _same_times(note, path):
        return note
    now = note_of(path)
    if now["sha256"] != note["sha256"]:
        raise FormatError(
            str(path),
            0,
            f"the file was edited after the cache {cache} was built from it; set another "
            "data.cache_dir, or delete that cache if no run needs it",
        )
    return now


def _file(root: Path, cache: str) -> Path:
    return root / f"sources-{cache}.json"


def _read(file: Path) -> list[SourceNote]:
    try:
        notes: list[SourceNote] = json.loads(read_bytes(file))
        return notes if all(note.keys() == SourceNote.__annotations__.keys() for note in notes) else []
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return []
