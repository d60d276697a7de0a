"""Find the files of a corpus by listing folders; no file is opened.

A `Listing` has the files in their final order and one digest over (name, size, mtime, ctime, inode) of each. If the
digest is unchanged, the corpus need not be read again: `documents/plain_text.py` stores the pair (digest, corpus hash)
next to the caches. A file that is rewritten with its old size and modification time still has a new ctime, which no
system call can restore. A file that changed within the last two seconds is never trusted (`is_settled`), because a
second write could have the same time stamp.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mudd_core.base.errors import UserError
from mudd_core.base.paths import hub_cache

Kind = Literal["stdlib", "folder", "file"]

# The standard library is the default corpus (docs/data.md, 1). These folders and files are excluded.
STDLIB_FOLDERS_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__"}
)
SETTLE_SECONDS = 2.0


@dataclass(frozen=True)
class FileStat:
    """One file: its name relative to the root, its size in bytes, and the stamps that reveal a change."""

    name: bytes
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True)
class Listing:
    """The files of a corpus in final order (names sorted as bytes). links: the number of skipped links."""

    kind: Kind
    root: Path
    files: tuple[FileStat, ...]
    links: int = 0

    @property
    def source(self) -> str:
        """The name of the source: a newer listing of a source replaces the older one in the index."""
        return (
            f"{self.kind}:{self.root / os.fsdecode(self.files[0].name) if self.kind == 'file' else self.root}"
        )

    def digest(self) -> str:
        """Return SHA-256 over everything that may reveal a change of the corpus."""
        h = hashlib.sha256(self.source.encode("utf-8", "surrogateescape"))
        for f in self.files:
            h.update(f.name)
            h.update(f"\0{f.size},{f.mtime_ns},{f.ctime_ns},{f.inode}\0".encode())
        return h.hexdigest()

    def is_settled(self) -> bool:
        """Return whether no file changed within the last two seconds."""
        newest = max((max(f.mtime_ns, f.ctime_ns) for f in self.files), default=0)
        return time.time_ns() - newest > SETTLE_SECONDS * 1e9

    def path_of(self, f: FileStat) -> bytes:
        return os.path.join(os.fsencode(self.root), f.name)


def _stat_of(name: bytes, s: os.stat_result) -> FileStat:
    return FileStat(name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)


def _enters_stdlib(folder: bytes) -> bool:
    name = os.fsdecode(folder)
    return name not in STDLIB_FOLDERS_LEFT_OUT and not name.startswith("config-")


def _takes_stdlib(file: bytes) -> bool:
    return file.endswith(b".py") and not file.startswith(b"_sysconfigdata")


def _walk(
    folder: bytes, prefix: bytes, stdlib: bool, leave_out: bytes, links: list[bytes]
) -> Iterator[FileStat]:
    """Yield the regular files below `folder` except below the prefix `leave_out`. links: receives names of links."""
    if prefix == leave_out:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_symlink():
                if not entry.name.startswith(b"."):
                    links.append(name)
            elif entry.is_dir(follow_symlinks=False):
                if _enters_stdlib(entry.name) if stdlib else not entry.name.startswith(b"."):
                    yield from _walk(entry.path, name + b"/", stdlib, leave_out, links)
            elif entry.is_file(follow_symlinks=False) and (
                _takes_stdlib(entry.name) if stdlib else not entry.name.startswith(b".")
            ):
                yield _stat_of(name, entry.stat(follow_symlinks=False))


def _folder(root: Path, leave_out: bytes = b"/") -> tuple[list[FileStat], list[bytes]]:
    """Return the files below a folder, sorted, and the names of the skipped links.

    A link to a regular file is followed if the file is below the folder or in the hub's cache, whose snapshots are
    links. No file is listed twice.
    """
    links: list[bytes] = []
    top = os.fsencode(root)
    files = list(_walk(top, b"", False, leave_out, links))
    real = os.path.realpath(top)
    taken = {os.path.join(real, file.name) for file in files}
    left = []
    for name in sorted(links):
        target = os.path.realpath(os.path.join(top, name))
        if target in taken:
            continue
        if not os.path.isfile(target) or not _may_follow(os.fsdecode(target), root):
            left.append(name)
            continue
        taken.add(target)
        files.append(_stat_of(name, os.stat(target)))
    return sorted(files, key=lambda file: file.name), left


def _may_follow(target: str, root: Path) -> bool:
    """Return whether to follow a link below `root` to this file: below `root`, or a blob of the hub's cache."""
    at = Path(os.path.realpath(root))
    places = [at, Path(os.path.realpath(hub_cache()))]
    if "snapshots" in at.parts:  # a copied folder of the cache: NAME/snapshots/REVISION and NAME/blobs
        repository = Path(*at.parts[: at.parts.index("snapshots")])
        places.append(repository / "blobs")
    return any(Path(target).is_relative_to(place) for place in places)


def _prefix_of(folder: Path | None, root: Path) -> bytes:
    """Return the prefix of `folder` in names relative to `root`, with links resolved; None matches no file."""
    if folder is None:
        return b"/"
    name = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    return b"" if name == "." else os.fsencode(name) + b"/"


def list_files(path: str, leave_out: Path | None = None) -> Listing:
    """Return the files of the corpus that `data.path` names.

    "" is the default corpus: the regular `.py` files of the running Python's standard library that docs/data.md, 1
    describes. A folder means all regular files below it, except names that start with a dot; `_folder` describes the
    links that it follows. leave_out: a folder that is not text (the token caches). A file or a link to one is a corpus
    of one file. Raise UserError if `path` does not exist or contains no file.
    """
    if "\0" in path:
        raise UserError(f"[data.path] expected a file or folder, got {path!r}: it has a NUL character")
    try:
        root = Path(path).expanduser().absolute() if path else Path(sysconfig.get_path("stdlib"))
    except RuntimeError as e:  # `~NAME` of an unknown user
        raise UserError(f"[data.path] expected a file or folder, got {path!r}: {e}") from None
    try:
        mode = root.stat().st_mode
        if stat.S_ISREG(mode):
            return Listing("file", root.parent, (_stat_of(os.fsencode(root.name), root.stat()),))
        if not stat.S_ISDIR(mode):
            raise UserError(f"[data.path] expected a regular file or a folder, got {str(root)!r}")
        prefix = _prefix_of(leave_out, root)
        left: list[bytes] = []
        if path:
            files, left = _folder(root, prefix)
        else:
            files = sorted(_walk(os.fsencode(root), b"", True, prefix, []), key=lambda f: f.name)
    except OSError as e:
        raise UserError(
            f"[data.path] expected a readable text file or a folder of them, got {str(root)!r}: {e.strerror}"
        ) from e
    if not files:
        raise UserError(
            f"[data.path] empty corpus: no file to read in {str(root)!r}; name a text file or a folder"
        )
    return Listing("folder" if path else "stdlib", root, tuple(files), len(left))


class NoFilesError(UserError):
    """A path that names no files of data."""


# Files of a `save_to_disk` folder that have no records.
_NOT_DATA = frozenset({"dataset_info.json", "state.json", "dataset_dict.json", "_SUCCESS"})
_MAPS = ("_doc_idx.npy", "_sample_idx.npy", "_shuffle_idx.npy")


def data_files(
    path: str, argument: str = "data.path", *, links: list[Path] | None = None, repeats: bool = False
) -> tuple[Path, ...]:
    """Return the files of a path, sorted as bytes.

    A path is a file, a folder, a glob (also `**`), or several with commas.

    Of an indexed data set only NAME.bin is listed, without the maps next to it. In folders, names with a leading dot
    are skipped. Raise NoFilesError for a path that does not exist. argument: the name of the field. links: receives the
    skipped links of folders. repeats: accept a file that is named twice, but list it once.
    """
    found: set[Path] = set()
    real: set[str] = set()
    links = [] if links is None else links
    for part in parts_of(path):
        if part.strip():
            files = _part(part.strip(), argument, links)
            found.update(files if repeats else _new_files(files, real, argument))
    indexed = {file.with_suffix("") for file in found if file.suffix == ".idx"}
    if indexed:
        found = {file for file in found if not (file.suffix == ".idx" and file.with_suffix(".bin") in found)}
        found = {file for file in found if not file.name.endswith(_MAPS)}
    if not found:
        about = f" except {len(links):,} links to other places, {str(links[0])!r} first" if links else ""
        raise NoFilesError(f"[{argument}] expected files, got {path!r}, which has no files{about}")
    return tuple(sorted(found, key=os.fsencode))


def parts_of(path: str) -> list[str]:
    """Return the files, folders and patterns that a path names: one, or several with commas."""
    return [path] if os.path.lexists(Path(path).expanduser()) else path.split(",")


def _new_files(files: list[Path], real: set[str], argument: str) -> list[Path]:
    """Return the files of one part of a path, each once.

    Raise NoFilesError for a file in `real`, which earlier parts had.
    """
    once = {os.path.realpath(file): file for file in sorted(files, key=os.fsencode, reverse=True)}
    if twice := sorted(real.intersection(once)):
        raise NoFilesError(f"[{argument}] expected each file once, got {str(once[twice[0]])!r} twice")
    real.update(once)
    return list(once.values())


def _part(part: str, argument: str, links: list[Path]) -> list[Path]:
    if "\0" in part:
        raise NoFilesError(f"[{argument}] expected a file or folder, got {part!r}: it has a NUL character")
    try:
        root = Path(part).expanduser().absolute()
    except RuntimeError as error:  # `~NAME` of an unknown user
        raise NoFilesError(f"[{argument}] expected a file or folder, got {part!r}: {error}") from None
    try:
        if root.is_file():
            return [root]
        if root.is_dir():
            files, left = _folder(root)
            links += [root / os.fsdecode(name) for name in left]
            paths = [root / os.fsdecode(file.name) for file in files]
            return [file for file in paths if file.name not in _NOT_DATA]
        names = sorted(glob.glob(str(root), recursive=True))
    except OSError as error:
        raise NoFilesError(f"[{argument}] cannot read {part!r}: {error.strerror}") from None
    if os.path.lexists(root):
        raise NoFilesError(f"[{argument}] expected a regular file or a folder, got {str(root)!r}")
    if glob.has_magic(part):
        if not names:
            raise NoFilesError(
                f"[{argument}] expected files, got the pattern {part!r}, which matches no file"
            )
        return [Path(name) for name in names if Path(name).is_file()]
    if root.with_name(root.name + ".idx").is_file():  # NAME of an indexed data set
        return [root.with_name(root.name + ".bin")]
    raise NoFilesError(
        f"[{argument}] expected a file, a folder or a pattern, got {part!r}, which does not exist"
    )
