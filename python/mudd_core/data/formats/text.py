"""Read plain UTF-8 text: a file is one record, `text`. Other encodings raise an error that suggests a conversion."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import FAIL, BadRecords, Columns, Format, Record, require_columns
from mudd_core.data.formats.packed import packing_of

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HEAD_BYTES = 4096


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the text of the file; raise UserError if its bytes are not UTF-8."""
    require_columns(path, columns, ["text"])
    with BoundedFile(path) as file:
        data = file.read(0, file.size, "text")
    if (fault := fault_in(data)) is not None:
        raise not_text(path, fault)
    yield {"text": data.decode("utf-8")}


FORMAT = Format("text", (".txt", ".text", ".md", ".py"), lambda _head: False, records, holds="text")


def fault_in(data: bytes) -> int | None:
    """Return the offset of the first byte that is not UTF-8; None if all are."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def not_text(path: Path, offset: int) -> UserError:
    """Return the error of a file whose byte at `offset` is not UTF-8."""
    with open_binary(path) as file:
        head = file.read(_HEAD_BYTES)
    return UserError(
        f"[data.path] expected UTF-8 text, got other bytes in {str(path)!r} at byte {offset}: {_cure(path, head)}"
    )


def _cure(path: Path, head: bytes) -> str:
    name, new = shlex.quote(str(path)), shlex.quote(f"{path}.utf8")
    packing = packing_of(head)
    if packing is not None:
        program, ending = {"gzip": ("gunzip -c", "gz"), "zstd": ("zstd -dc", "zst")}[packing]
        return (
            f"it is compressed by {packing}; type `{program} {name} > {new}` and name the new file; "
            f"if it has lines of JSON, rename it to NAME.jsonl.{ending} instead"
        )
    if head.startswith(_UTF16):
        return f"it is UTF-16; type `iconv -f UTF-16 -t UTF-8 {name} > {new}` and name the new file"
    if b"\0" in head:
        return "it has NUL bytes, so it is not text; name text files"
    return f"if it is Latin-1, type `iconv -f LATIN1 -t UTF-8 {name} > {new}` and name the new file"
