"""Tolerances that several tests use, each with its reason; tests/tolerances.inc has the bounds of single ops."""

from __future__ import annotations

# A float32 value in an event file or a log: half a rounding step is 6e-8 of it.
STORED = 1e-6
# A float32 loss or weight of the same computation with its sums in another order.
REORDERED = 1e-6
# float64 arithmetic in another order.
FLOAT64 = 1e-12
# Integers that were divided or multiplied in float64.
COUNTED = 1e-9
# The documented accuracy of --plan: the memory of the run within a tenth.
PLANNED = 0.10
