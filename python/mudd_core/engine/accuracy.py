"""What share of its targets a model guesses: those whose logit is the largest, the first of equal ones."""

from __future__ import annotations

from collections.abc import Sequence

SAMPLE_ACCURACY = "sample_accuracy"  # among the metrics of a step: the mean over its sequences


def step_accuracy(sums: Sequence[float], targets: float, sequences: int) -> dict[str, float]:
    """The metrics of a step that counted so many targets, by the sums of what cross_entropy says of each sequence."""
    guessed, shares = sums
    return {"accuracy": float(guessed / max(1.0, targets)), SAMPLE_ACCURACY: float(shares / sequences)}
