"""Where the records of TFRecord files begin: found once a file, kept in the cache folder with a checksum."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from mudd_core.base.regular_files import read_bytes, write_file
from mudd_core.base.types import Int64
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.tfrecord import offsets


def record_offsets(path: Path, cache: Path) -> Int64:
    """The byte of each record. An index that is damaged or of a changed file is made again."""
    from mudd_core import _core

    state = path.stat()
    name = (
        os.fsencode(path.absolute()) + f"\0{state.st_size},{state.st_mtime_ns},{state.st_ctime_ns}".encode()
    )
    kept = cache / "offsets" / hashlib.sha256(name).hexdigest()[:24]
    if kept.is_file():
        data = read_bytes(kept)
        if len(data) % 8 == 4 and _core.crc32c(data[4:]) == int.from_bytes(data[:4], "little"):
            return np.frombuffer(data, "<i8", offset=4).astype(np.int64)
    with BoundedFile(path) as file:
        found = np.fromiter(offsets(file), np.int64)
    kept.parent.mkdir(parents=True, exist_ok=True)
    data = found.astype("<i8").tobytes()
    write_file(kept, _core.crc32c(data).to_bytes(4, "little") + data)
    return found
