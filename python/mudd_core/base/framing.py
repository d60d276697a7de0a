"""Framed records, and the small part of protobuf that TensorBoard's events and tf.train.Example need.

A record is its length (u64), the masked CRC-32C of those eight bytes, the payload, and the masked CRC-32C of the
payload. TensorBoard's own library needs protobuf and imports PyTorch if that is installed (three seconds and 190 MiB).
The fields of a tensorflow.Event used here: wall_time 1 (double), step 2 (varint), file_version 3 (text), summary 5
{value 1 {tag 1 (text), simple_value 2 (float)}}, session_log 7 {status 1 (varint)}. A text value has instead: tensor 8
{dtype 1 (varint), string_val 8 (bytes)}, metadata 9 {plugin_data 1 {name 1}}.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from mudd_core.base.regular_files import open_to_append

HEADER_BYTES = 12
FOOTER_BYTES = 4


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C, rotated and offset so that data that contain their checksum have no constant checksum."""
    from mudd_core import _core

    crc = _core.crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def framed(payload: bytes) -> bytes:
    """Return the record of this payload."""
    length = struct.pack("<Q", len(payload))
    return b"".join(
        (length, struct.pack("<I", masked_crc(length)), payload, struct.pack("<I", masked_crc(payload)))
    )


def varint(value: int) -> bytes:
    """Return an integer of at least 0 as a varint: groups of seven bits, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def block(field: int, data: bytes) -> bytes:
    """Return a length-delimited field: a string or a nested message. field: 1 to 15."""
    return bytes([field << 3 | 2]) + varint(len(data)) + data


_NAME = "events.out.tfevents"
_SESSION_START = 1
_STRING = 7  # the value of DT_STRING in TensorFlow's types


def _float32(value: float) -> bytes:
    """Pack a value as float32; a value beyond its range becomes an infinity of the same sign."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


class EventFile:
    """Appends scalars to one event file. A viewer that reads the folder discards steps from `purge_step` on."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{_NAME}.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file: BinaryIO = open_to_append(folder / name)
        self._write(None, block(3, b"brain.Event:2"))
        if purge_step is not None:
            self._write(purge_step, block(7, b"\x08" + varint(_SESSION_START)))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write one value for each tag at this step."""
        summary = b"".join(
            block(1, block(1, tag.encode()) + b"\x15" + _float32(value)) for tag, value in values.items()
        )
        self._write(step, block(5, summary))

    def text(self, step: int, tag: str, text: str) -> None:
        """Write a text summary."""
        tensor = b"\x08" + varint(_STRING) + block(8, text.encode())
        metadata = block(1, block(1, b"text"))
        value = block(1, tag.encode()) + block(8, tensor) + block(9, metadata)
        self._write(step, block(5, block(1, value)))

    def _write(self, step: int | None, content: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time())
        if step is not None:
            event += b"\x10" + varint(step)
        event += content
        self._file.write(framed(event))

    def flush(self) -> None:
        """Hand all buffered records to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Write the buffered records and close the file."""
        self._file.close()


class EventFiles:
    """The metrics of a run as TensorBoard events; the file is created with the first entry."""

    def __init__(self, folder: Path, resumed_step: int | None = None, flush_every: int = 1) -> None:
        """resumed_step: viewers discard later steps in earlier files. None: viewers discard nothing.

        flush_every: steps between two flushes; a save also flushes.
        """
        self._folder = folder
        self._flush_every, self._flushed = flush_every, resumed_step or 0
        self._resumed_step = resumed_step
        self._file: EventFile | None = None

    def _opened(self) -> EventFile:
        if self._file is None:
            # A run that was killed before its first checkpoint may have left an event file.
            step = self._resumed_step
            purges = step is not None and (step > 0 or any(self._folder.glob(f"{_NAME}.*")))
            self._file = EventFile(self._folder, (step or 0) + 1 if purges else None)
        return self._file

    def append(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write the metrics of a step, and flush them if that is due."""
        self._opened().scalars(step, scalars)
        if step // self._flush_every != self._flushed // self._flush_every:
            self.flush()
            self._flushed = step

    def add(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None) -> None:
        """Write further tags of a step."""
        opened = self._opened()
        if scalars:
            opened.scalars(step, scalars)
        for tag, text in (texts or {}).items():
            opened.text(step, tag, text)

    def flush(self) -> None:
        """Hand all buffered records to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Write the buffered records and close the file."""
        if self._file is not None:
            self._file.close()
