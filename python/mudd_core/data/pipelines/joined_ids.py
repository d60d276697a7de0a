"""Ids in records (jsonl, Parquet, Arrow, TFRecord), joined into one file of plain ids in the cache folder.

The pipeline `ids` reads ids by their index, which records of any length do not allow. A joined file belongs to the
name, size and times of its source, and a start compares it with its SHA-256.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import SaveError, write_reason
from mudd_core.base.paths import from_here
from mudd_core.base.regular_files import read_text, write_text
from mudd_core.data.formats import Format
from mudd_core.data.formats.format import ids_of, require_ids
from mudd_core.data.progress import UNKNOWN, ConsoleProgress, end_on_request
from mudd_core.data.rows import Preparation
from mudd_core.data.sources.corpus import Progress

FOLDER = "joined-ids"
_REPORT = 1000  # records between two reports of the progress


def joined(
    files: Sequence[Path], one: Format, column: str, vocab_size: int, root: Path, how: Preparation
) -> tuple[Path, ...]:
    """Return a file of 32-bit ids for each file of records, written if it is missing, damaged or out of date.

    root: the folder of caches. Raise UserError for a missing column, FormatError for ids outside the vocabulary,
    SaveError if the disk rejects a write.
    """
    progress: Progress = how.progress or ConsoleProgress(what=f"joining ids in {from_here(root / FOLDER)}")
    found = []
    for path in files:
        target = root / FOLDER / _name_of(path, column)
        if not _is_whole(target):
            if how.before_build is not None:
                how.before_build()
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(path, one, column, vocab_size, target, progress)
            except OSError as error:
                raise SaveError(f"[data.cache_dir] {target}: {write_reason(error)}") from error
        found.append(target)
    if isinstance(progress, ConsoleProgress):
        progress.close()
    return tuple(found)


def _name_of(path: Path, column: str) -> str:
    state = path.stat()
    stamps = f"\0{state.st_size},{state.st_mtime_ns},{state.st_ctime_ns},{column}"
    return hashlib.sha256(os.fsencode(path.absolute()) + stamps.encode()).hexdigest()[:24] + ".u32"


def _seal_of(target: Path) -> Path:
    return target.with_suffix(".sha256")


def _is_whole(target: Path) -> bool:
    """Return whether a joined file exists and matches its SHA-256."""
    if not (target.is_file() and _seal_of(target).is_file()):
        return False
    with target.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return read_text(_seal_of(target)).strip() == found


def _write(path: Path, one: Format, column: str, vocab_size: int, target: Path, progress: Progress) -> None:
    """Write the ids of a file under a temporary name, then its SHA-256 and its name."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    digest = hashlib.sha256()
    try:
        with temporary.open("wb") as out:
            for number, record in enumerate(one.records(path, (column,))):
                ids = ids_of(record.get(column), path, number, column)
                require_ids(ids, vocab_size, path, number)
                data = ids.astype("<u4").tobytes()
                out.write(data)
                digest.update(data)
                if number % _REPORT == 0:
                    end_on_request("joining ids")
                    progress(f"joining the ids of {path.name}", number, UNKNOWN)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    write_text(_seal_of(target), digest.hexdigest() + "\n")
