"""Framed records, and the small part of protobuf that TensorBoard's events and tf.train.Example need.

A record is its length (u64), the masked CRC-32C of those eight bytes, the payload, the masked CRC-32C of the payload.
"""

from __future__ import annotations

import struct

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
