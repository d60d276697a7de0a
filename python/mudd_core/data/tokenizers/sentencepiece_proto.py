"""Read the pieces and settings of a sentencepiece model, a protocol buffer (sentencepiece_model.proto).

The library has no functions for the type of a piece or the normalizer's settings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from mudd_core.base.errors import FormatError

_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of the model
_TEXT, _SCORE, _TYPE = 1, 2, 3  # fields of a piece
_MODEL_TYPE, _SUFFIX, _BYTE_FALLBACK = 3, 24, 35  # fields of the trainer's settings
_CHARSMAP, _PREFIX, _REMOVES, _ESCAPES = 2, 3, 4, 5  # fields of the normalizer's settings


class PieceType(IntEnum):
    """The type of a piece, with its number in the file. GGUF has the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """A piece of the vocabulary."""

    text: str
    score: float = 0.0
    type: PieceType = PieceType.NORMAL


@dataclass(frozen=True)
class SentencePieceModel:
    """The pieces by id, and the settings that determine how text is split.

    charsmap: the normalizer's table; empty if it changes no characters.
    """

    pieces: list[Piece] = field(default_factory=list)
    model_type: str = "unigram"
    byte_fallback: bool = False
    adds_prefix: bool = True
    prefix_is_suffix: bool = False
    removes_spaces: bool = True
    escapes_spaces: bool = True
    charsmap: bytes = b""


def read_model(data: bytes, file: str) -> SentencePieceModel:
    """Return the content of a tokenizer.model; raise FormatError for a damaged one. file: for messages."""
    try:
        return _model(data)
    except (ValueError, KeyError, struct.error, IndexError) as error:
        raise FormatError(file, 0, f"not a sentencepiece model: {error}") from None


def _model(data: bytes) -> SentencePieceModel:
    pieces, trainer, normalizer = [], dict[int, int | bytes](), dict[int, int | bytes]()
    for number, value in _fields(data):
        if number == _PIECES:
            pieces.append(_piece(dict(_fields(_message(value)))))
        elif number == _TRAINER:
            trainer |= dict(_fields(_message(value)))
        elif number == _NORMALIZER:
            normalizer |= dict(_fields(_message(value)))
    return SentencePieceModel(
        pieces,
        _MODEL_TYPES[_number(trainer.get(_MODEL_TYPE, 1))],
        bool(_number(trainer.get(_BYTE_FALLBACK, 0))),
        bool(_number(normalizer.get(_PREFIX, 1))),
        bool(_number(trainer.get(_SUFFIX, 0))),
        bool(_number(normalizer.get(_REMOVES, 1))),
        bool(_number(normalizer.get(_ESCAPES, 1))),
        _message(normalizer.get(_CHARSMAP, b"")),
    )


def _piece(members: dict[int, int | bytes]) -> Piece:
    [score] = struct.unpack("<f", _message(members.get(_SCORE, bytes(4))))
    kind = PieceType(_number(members.get(_TYPE, PieceType.NORMAL)))
    return Piece(_message(members.get(_TEXT, b"")).decode("utf-8"), score, kind)


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("expected bytes, got a number")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("expected a number, got bytes")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message. The value of a fixed-size or length-delimited field is its bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire, value = key & 7, None
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise ValueError(f"field {key >> 3} has type {wire} at byte {at} of {len(data)}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (integer of 7 bits per byte, place after it)."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise ValueError(f"an integer of more than 10 bytes ends at byte {at}")
