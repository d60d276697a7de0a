"""Plain UTF-8 text: a file is one record, `text`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mudd_core.data.formats.bad_records import FAIL, BadRecords
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import Columns, Format, Record, require_columns
from mudd_core.data.formats.not_text import fault_in, not_text


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """The text of the file; UserError if its bytes are not UTF-8."""
    require_columns(path, columns, ["text"])
    with BoundedFile(path) as file:
        data = file.read(0, file.size, "text")
    if (fault := fault_in(data)) is not None:
        raise not_text(path, fault)
    yield {"text": data.decode("utf-8")}


FORMAT = Format("text", (".txt", ".text", ".md", ".py"), lambda _head: False, records, holds="text")
