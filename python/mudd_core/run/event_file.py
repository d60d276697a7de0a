"""TensorBoard event files: framed records of a small protobuf message, written by hand.

A library for this exists, but it brings protobuf and imports PyTorch where that is installed (three seconds and
190 MiB). Format: each record is its length (u64), the masked CRC-32C of those eight bytes, the message, the masked
CRC-32C of the message. Message fields used, of tensorflow.Event: wall_time 1 (double), step 2 (varint),
file_version 3 (text), summary 5 {value 1 {tag 1 (text), simple_value 2 (float)}}, session_log 7 {status 1 (varint)};
of a value that is a text: tensor 8 {dtype 1 (varint), string_val 8 (bytes)}, metadata 9 {plugin_data 1 {name 1}}.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import BinaryIO

from mudd_core import _core
from mudd_core.base.regular_files import open_to_append

_SESSION_START = 1
_STRING = 7  # DT_STRING


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _block(field: int, data: bytes) -> bytes:
    """A length-delimited field: text or a nested message."""
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _masked_crc(data: bytes) -> bytes:
    crc = _core.crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


class EventFile:
    """Appends scalars to one event file. A viewer that reads the folder forgets steps from `purge_step` on."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file: BinaryIO = open_to_append(folder / name)
        self._write(None, _block(3, b"brain.Event:2"))
        if purge_step is not None:
            self._write(purge_step, _block(7, b"\x08" + _varint(_SESSION_START)))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """One value for each tag at this step."""
        summary = b"".join(
            _block(1, _block(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
            for tag, value in values.items()
        )
        self._write(step, _block(5, summary))

    def text(self, step: int, tag: str, text: str) -> None:
        """A text summary."""
        tensor = b"\x08" + _varint(_STRING) + _block(8, text.encode())
        metadata = _block(1, _block(1, b"text"))
        value = _block(1, tag.encode()) + _block(8, tensor) + _block(9, metadata)
        self._write(step, _block(5, _block(1, value)))

    def _write(self, step: int | None, content: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time())
        if step is not None:
            event += b"\x10" + _varint(step)
        event += content
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked_crc(length) + event + _masked_crc(event))

    def flush(self) -> None:
        """Hand everything to the system."""
        self._file.flush()

    def close(self) -> None:
        """Write the rest and close."""
        self._file.close()
