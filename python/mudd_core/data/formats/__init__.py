"""File formats of data, one module each; config/data.py lists their names.

`format_of` recognises a file, `documents` reads the documents of files, `rows` their lists of ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError, UserError
from mudd_core.config.data import FORMATS as NAMES
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import FAIL, BadRecords, Format, Record, ids_of, text_of

__all__ = ["FORMATS", "Format", "Record", "documents", "format_of", "only", "rows"]

FORMATS: dict[str, Format] = {name: import_module(f"{__name__}.{name}").FORMAT for name in NAMES}
_TEXT = FORMATS["text"]  # the format of every file that no other format recognises
_HEAD = 1 << 16


def format_of(path: Path, named: str = "auto") -> Format:
    """Return the format of a file: the named one, else by its suffix, else by its first bytes; text if none matches."""
    if named != "auto":
        return FORMATS[named]
    name = path.name.lower()
    for one in FORMATS.values():
        if name.endswith(one.endings) and one.has(path):
            return one
    with BoundedFile(path) as file:
        head = file.read(0, min(file.size, _HEAD), "the head")
    return next((one for one in FORMATS.values() if one.is_start(head)), _TEXT)


def documents(path: Path, column: str = "text", named: str = "auto", bad: BadRecords = FAIL) -> Iterator[str]:
    """Yield the documents of a file; raise UserError if it has no such column."""
    one = format_of(path, named)
    wanted = "text" if one.holds == "text" else column
    bad.begin(str(path))
    for number, record in enumerate(one.records(path, (wanted,), bad)):
        try:
            text = text_of(record.get(wanted), path, number, wanted)
        except FormatError as error:
            bad.found(error)
        else:
            yield text


def rows(path: Path, column: str = "input_ids", named: str = "auto") -> Iterator[npt.NDArray[np.int64]]:
    """Yield the lists of ids of a file; raise UserError if it has no such column."""
    one = format_of(path, named)
    if one.holds == "text":
        raise UserError(f"[data.path] expected a file of ids, got the text {path}; name another pipeline")
    for number, record in enumerate(one.records(path, (column,))):
        yield ids_of(record.get(column), path, number, column)


def only(files: Sequence[Path], named: str = "auto") -> Format:
    """Return the common format of all these files; raise UserError if there are several."""
    found: dict[str, Path] = {}
    for path in files:
        found.setdefault(format_of(path, named).name, path)
    if len(found) > 1:
        shown = ", ".join(f"{name} ({path.name})" for name, path in sorted(found.items()))
        raise UserError(
            f"[data.path] expected files of one format, got {shown}; select the files of one format, "
            "such as data.path='FOLDER/*.jsonl'"
        )
    return FORMATS[next(iter(found))]
