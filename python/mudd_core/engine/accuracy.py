"""Accuracy: the fraction of targets whose logit is the largest, the first of equal ones."""

from __future__ import annotations

from collections.abc import Sequence

SAMPLE_ACCURACY = "sample_accuracy"  # among the metrics of a step: the mean over its sequences


def step_accuracy(sums: Sequence[float], targets: float, sequences: int) -> dict[str, float]:
    """Return the accuracy metrics of a step. sums: over sequences, from cross_entropy; targets: counted ones of the
    step.
    """
    guessed, shares = sums
    return {"accuracy": float(guessed / max(1.0, targets)), SAMPLE_ACCURACY: float(shares / sequences)}
