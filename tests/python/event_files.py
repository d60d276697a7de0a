"""TensorBoard's event files, parsed with the message definitions of another library."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event

from mudd_core import _core


def _masked(data: bytes) -> int:
    crc = _core.crc32c(data)
    return int((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_of(folder: Path) -> list[Any]:
    """Return the messages of all event files of a folder, with verified checksums."""
    found = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            body = data[at + 12 : at + 12 + length]
            assert struct.unpack_from("<I", data, at + 8) == (_masked(data[at : at + 8]),)
            assert struct.unpack_from("<I", data, at + 12 + length) == (_masked(body),)
            found.append(Event.FromString(body))
            at += 16 + length
    return found


def tags_of(folder: Path) -> dict[str, dict[int, float]]:
    """Return the values of each tag by step."""
    tags: dict[str, dict[int, float]] = {}
    for event in events_of(folder):
        for value in event.summary.value:
            tags.setdefault(value.tag, {})[event.step] = value.simple_value
    return tags
