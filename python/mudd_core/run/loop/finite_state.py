"""The check of weights and moments: before a save, and after an update that spoilt them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mudd_core.base.errors import DivergedError
from mudd_core.checkpoint import StatePart, dtypes


def require_finite(parts: Sequence[StatePart]) -> None:
    """Raise DivergedError with the name, index and value of the first element that is not finite."""
    if found := first_not_finite(parts):
        raise DivergedError(
            f"[save] expected finite weights and moments, got {found}; nothing was saved. Set the weight again, or "
            "create a new Trainer, which resumes from the last checkpoint"
        )


def first_not_finite(parts: Sequence[StatePart]) -> str:
    """Return value, index and name of the first element that is not finite, for a message; empty if there is none."""
    for part in parts:
        if part.array.dtype.kind in "iu":  # counts, and the bits of bf16 moments, which each update checks
            continue
        values = dtypes.as_float32(part.array).reshape(-1)
        # A sum needs no memory, and is NaN or infinite if an element is. It may also overflow, so check elements then.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(values, dtype=np.float32)):
                continue
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            element = part.begin + int(bad[0])
            return f"{values[bad[0]]} at element {element:,} of '{part.name}' ({bad.size:,} in all)"
    return ""
