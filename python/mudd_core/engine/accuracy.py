"""Accuracy: the fraction of targets that have the largest logit. Among equal logits, the first one is the largest."""

from __future__ import annotations

from collections.abc import Iterable

SAMPLE_ACCURACY = "sample_accuracy"  # key in the metrics of a step: the mean accuracy of its sequences


def step_accuracy(sums: Iterable[float], targets: float, sequences: int) -> dict[str, float]:
    """Return the accuracy metrics of a step. sums: the sums over sequences from cross_entropy. targets: the number of
    counted targets in the step.
    """
    guessed, shares = sums
    return {"accuracy": float(guessed / max(1.0, targets)), SAMPLE_ACCURACY: float(shares / sequences)}


def teacher_metrics(sums: Iterable[float], targets: float) -> dict[str, float]:
    """Return the metrics of a step about its teacher. sums: the sums over sequences from teacher_loss."""
    nats, agreed = (float(one / max(1.0, targets)) for one in sums)
    return {"teacher_kl": nats, "teacher_agreement": agreed}
