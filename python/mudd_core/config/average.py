"""The value of train.average: which mean of the weights a run keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

EXPECTED = "ema:DECAY with 0 < DECAY < 1, such as ema:0.999, or last:N with N updates, such as last:1000"


@dataclass(frozen=True)
class Averaging:
    """A mean of the weights over updates. Exactly one of the two fields is set.

    decay: of an exponential moving average, a = decay a + (1 - decay) w after each update. last: the number of updates
    at the end of the run whose weights have a uniform mean.
    """

    decay: float = 0.0
    last: int = 0

    def first_step(self, steps: int) -> int:
        """Return the update after which the mean starts, in a run of `steps` updates; -1 for a moving average."""
        return max(0, steps - self.last) if self.last else -1


def averaging_of(text: str) -> Averaging | None:
    """Parse train.average; None if it is empty. Raise ValueError if the string is malformed."""
    kind, _, value = text.strip().partition(":")
    if not kind and not value:
        return None
    if kind == "last" and value.isascii() and value.isdecimal() and 0 < int(value) < 2**31:
        return Averaging(last=int(value))
    try:
        decay = float(value) if kind == "ema" else math.nan
    except ValueError:
        decay = math.nan
    if not 0 < decay < 1:
        raise ValueError(f"expected {EXPECTED}, got {text!r}")
    return Averaging(decay=decay)
