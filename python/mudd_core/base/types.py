"""The types of values that many modules exchange: JSON, and NumPy arrays by dtype.

The aliases are strings, so that this module does not import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

# The result of json.loads and the argument of json.dumps. config/values.py reads single fields with a type and bounds.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"

Array: TypeAlias = "npt.NDArray[Any]"  # of any dtype
# Of any shape. With npt.NDArray a strict checker would complain about the types of the axes in users' code.
Float32: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"
Float64: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
# Values of a model: float32, but int32 for the chosen experts.
Value32: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.int32]]"
Int32: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int32]]"
Int64: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"
Bool: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"


def is_number(value: Json) -> TypeGuard[int | float]:
    """Return True for an int or a float, also for NaN and infinity; False for bool, which is an int in Python."""
    return isinstance(value, int | float) and not isinstance(value, bool)
