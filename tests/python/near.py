"""Tolerances that several tests share, each with its reason; tests/tolerances.inc has those of single ops."""

from __future__ import annotations

# A float32 value in an event file or a log: half a step is 6e-8 of it.
STORED = 1e-6
# A float32 loss or weight of the same computation with its sums in another order.
REORDERED = 1e-6
# float64 arithmetic in another order.
FLOAT64 = 1e-12
# Whole numbers that were divided or multiplied in float64.
COUNTED = 1e-9
# What --plan promises: the memory within a tenth of that of the run.
PLANNED = 0.10
