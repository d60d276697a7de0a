"""The sums of an evaluation over a batch."""

from __future__ import annotations

from typing import NamedTuple


class EvaluationSums(NamedTuple):
    """The sums over the targets of a batch; over its pairs if they are pairs of answers.

    loss: in nats. targets: their number, or the number of pairs. guessed: correct predictions, or ranked pairs, whose
    margin is positive. divergence: from the teacher, in nats. agreed: targets at which both models have the same
    likeliest token. Both are None without a teacher. margins: None without pairs.
    """

    loss: float
    targets: int
    guessed: int
    divergence: float | None = None
    agreed: int | None = None
    margins: float | None = None
