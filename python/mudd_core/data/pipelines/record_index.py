"""Where the records of TFRecord files begin: found once a file, kept in the cache folder with a checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mudd_core.base.regular_files import read_bytes, write_file
from mudd_core.base.types import Int64
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.tfrecord import offsets


def record_offsets(
    path: Path, cache: Path, rule: str = "", is_good: Callable[[BoundedFile, int], bool] | None = None
) -> Int64:
    """Return the offset of each record in bytes. An index that is damaged or of a changed file is built again.

    is_good: keeps the records at these offsets alone. rule: what it depends on, part of the name of the index.
    """
    from mudd_core import _core

    state = path.stat()
    name = (
        os.fsencode(path.absolute())
        + f"\0{state.st_size},{state.st_mtime_ns},{state.st_ctime_ns}{rule}".encode()
    )
    kept = cache / "offsets" / hashlib.sha256(name).hexdigest()[:24]
    if kept.is_file():
        data = read_bytes(kept)
        if len(data) % 8 == 4 and _core.crc32c(data[4:]) == int.from_bytes(data[:4], "little"):
            return np.frombuffer(data, "<i8", offset=4).astype(np.int64)
    with BoundedFile(path) as file:
        kept_offsets = (at for at in offsets(file) if is_good is None or is_good(file, at))
        found = np.fromiter(kept_offsets, np.int64)
    kept.parent.mkdir(parents=True, exist_ok=True)
    data = found.astype("<i8").tobytes()
    write_file(kept, _core.crc32c(data).to_bytes(4, "little") + data)
    return found
