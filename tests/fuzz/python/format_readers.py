"""Fuzz targets for the formats of data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checked import require


def run_format(ending: str) -> Callable[[bytes, Path], None]:
    """Read all records of a file of this format. A NAME.idx has a NAME.bin of 64 bytes next to it."""

    def run(data: bytes, folder: Path) -> None:
        from mudd_core.data.formats import format_of

        file = folder / f"data.{ending}"
        file.write_bytes(data)
        if ending == "idx":
            file.with_suffix(".bin").write_bytes(bytes(64))
        for record in format_of(file).records(file, None):
            require(all(isinstance(name, str) for name in record), "columns have names")

    return run


def frame_again(data: bytes) -> bytes:
    """Return TFRecord frames with valid checksums, up to the first invalid length."""
    from mudd_core.base.framing import framed

    at, parts = 0, []
    while at + 16 <= len(data):
        length = min(int.from_bytes(data[at : at + 8], "little"), len(data) - at - 16)
        parts.append(framed(data[at + 12 : at + 12 + length]))
        at += 16 + length
    return b"".join(parts)
