"""Arrays in NumPy's .npy format, versions 1 to 3: the header is checked, the values are read in place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from mudd_core.data.formats.bounded import BoundedFile

MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16
_KIND = re.compile(r"'descr': *'([<>|=][iuf][1248])'")
_ORDER = re.compile(r"'fortran_order': *(True|False)")
_SHAPE = re.compile(r"'shape': *\(((?: *[0-9]{1,18} *,?){0,8})\)")


@dataclass(frozen=True)
class NpyHeader:
    """Type, shape and offset of the values."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int


def header_of(file: BoundedFile) -> NpyHeader:
    """Return the header of an array of integers or floats. The array must fill the rest of the file exactly."""
    head = file.read(0, 10, "the header of an array")
    if head[:6] != MAGIC or head[6] not in (1, 2, 3):
        raise file.fault(0, "expected a NumPy array file, format version 1 to 3")
    wide = 4 if head[6] > 1 else 2
    length = int.from_bytes(file.read(8, wide, "the length of the header"), "little")
    if length > _LONGEST_HEADER:
        raise file.fault(8, f"expected a header of at most {_LONGEST_HEADER} bytes, got {length}")
    offset = 8 + wide + length
    text = file.read(8 + wide, length, "the header").decode("latin-1")
    kind, order, sizes = _KIND.search(text), _ORDER.search(text), _SHAPE.search(text)
    if kind is None or order is None or sizes is None:
        raise file.fault(10, "the header does not describe an array of numbers")
    dtype = np.dtype(kind[1])
    shape = tuple(int(part) for part in sizes[1].split(",") if part.strip())
    columns_first = order[1] == "True"
    if columns_first and len(shape) > 1:
        raise file.fault(10, "expected a C-contiguous array, got Fortran order")
    if len(shape) > 8 or math.prod(shape) * dtype.itemsize != file.size - offset:
        raise file.fault(offset, f"expected {shape} values of {dtype}, got {file.size - offset} bytes")
    return NpyHeader(dtype, shape, offset)
