"""Whether a baseline took the same steps as ours: its losses, and the lengths of its weights and moments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

STATE = ("weights", "first_moment", "second_moment")
# Relative. Without decay the weights of 25 steps would be 4e-4 longer on 9M; with PyTorch's own clip the moments would
# differ by 1e-3 there (baselines/torch_step.py). They differ by 1e-6.
STATE_TOLERANCE = {"weights": 5e-5, "moments": 1e-3}
# Of a loss. Rounding turns a top-k choice of a router now and then: over the 25 steps of Mixtral 9M PyTorch's eager
# losses leave those of its own float64 run (--baselines double) by 1.3e-4, ours by 3e-8 for 14 steps, later by 1.4e-4.
LOSS_TOLERANCE = {"mixtral": 3e-4}
WIDE_STATE = {"weights": 1e-3, "moments": 1e-1}
Row = dict[str, Any]


def compare(row: Row, ours: Row) -> None:
    """Adds the row's differences from ours: of a loss (largest), of the lengths of weights and moments (relative)."""
    row["loss_difference"] = largest(abs(x - y) for x, y in zip(ours["losses"], row["losses"], strict=True))
    change = {part: abs(row["state"][part] / ours["state"][part] - 1) for part in STATE}
    row["weights_difference"] = change.pop("weights")
    row["moments_difference"] = largest(change.values())


def largest(differences: Iterable[float]) -> float:
    """NaN if one is: a baseline whose losses are not numbers did not take the same steps."""
    found = list(differences)
    return math.nan if any(map(math.isnan, found)) else max(found)


def another_computation(row: Row, precision: str, loss_tolerance: float | None) -> str:
    """In words what differs from ours by more than rounding; empty if the row took the same steps."""
    wide = precision == "bf16"
    allowed = {
        "loss": loss_tolerance or (5e-2 if wide else LOSS_TOLERANCE.get(row["family"], 1e-4)),
        **(WIDE_STATE if wide else STATE_TOLERANCE),
    }
    for what, tolerance in allowed.items():
        difference = row.get(f"{what}_difference", 0.0)
        if not difference <= tolerance:  # NaN too
            return f"{what} differs by {difference:.1e}, over {tolerance:.0e}: not the same computation"
    return ""
