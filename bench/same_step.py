"""Check that a baseline took the same steps as mudd_core, by its losses and the norms of its weights and moments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

STATE = ("weights", "first_moment", "second_moment")
# Relative tolerance of norms. Without decay the norm of the weights would be 4e-4 larger after 25 steps of 9M; with
# PyTorch's own clip the moments would differ by 1e-3 (baselines/torch_step.py). The measured difference is 1e-6.
STATE_TOLERANCE = {"weights": 5e-5, "moments": 1e-3}
# Tolerance of losses. Rounding sometimes changes a router's top-k choice. Over 25 steps of Mixtral 9M the losses of
# eager PyTorch differ from its own float64 run (--baselines double) by 1.3e-4, and mudd_core's by 3e-8 for 14 steps
# and 1.4e-4 later.
LOSS_TOLERANCE = {"mixtral": 3e-4}
WIDE_STATE = {"weights": 1e-3, "moments": 1e-1}
Row = dict[str, Any]


def compare(row: Row, ours: Row) -> None:
    """Add to `row` its differences from mudd_core: the largest one of a loss, and the relative ones of norms."""
    row["loss_difference"] = largest(abs(x - y) for x, y in zip(ours["losses"], row["losses"], strict=True))
    change = {part: abs(row["state"][part] / ours["state"][part] - 1) for part in STATE}
    row["weights_difference"] = change.pop("weights")
    row["moments_difference"] = largest(change.values())


def largest(differences: Iterable[float]) -> float:
    """Return the largest value, or NaN if one is NaN: a baseline with a NaN loss did not take the same steps."""
    found = list(differences)
    return math.nan if any(map(math.isnan, found)) else max(found)


def another_computation(row: Row, precision: str, loss_tolerance: float | None) -> str:
    """Return a sentence about the differences beyond rounding; an empty string if the row took the same steps."""
    wide = precision == "bf16"
    allowed = {
        "loss": loss_tolerance or (5e-2 if wide else LOSS_TOLERANCE.get(row["family"], 1e-4)),
        **(WIDE_STATE if wide else STATE_TOLERANCE),
    }
    for what, tolerance in allowed.items():
        difference = row.get(f"{what}_difference", 0.0)
        if not difference <= tolerance:  # true for NaN too
            return f"{what} differs by {difference:.1e}, over {tolerance:.0e}: not the same computation"
    return ""
