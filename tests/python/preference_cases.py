"""Cases of ops.preference_loss: pairs of answers with ignored targets, and a pair that has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case, integers, normal
from reference import numpy_preferences as ref


def preference_case(kind: str, smoothing: float = 0.0) -> Case:
    """Return a case of three pairs; the last pair has an answer without targets, so it is not counted."""
    h, head, targets = normal(6, 5, 16), normal(37, 16) * 0.3, integers(37, 6, 5)
    targets[:4, :2], targets[1, 3:], targets[5] = -1, -100, -1
    reference = normal(6, 2) - 4 if kind == "dpo" else None
    beta = 0.4

    def pairs(h: Any, head: Any, t: Any, r: Any) -> tuple[ref.Pairs, Any]:
        found, counts = ref.log_probs(h, head, t)
        given = None if r is None else r[:4].astype(np.float64).sum(1)
        return ref.pair_losses(kind, beta, smoothing, found[:4], counts[:4], given), found

    def forward(h: Any, head: Any, t: Any, b: Any, r: Any) -> Any:
        found, log_probs = pairs(h, head, t, r)
        ranked = np.zeros((6, 2))
        ranked[:4:2] = np.stack([found.margin > 0, found.margin], -1)
        return np.array([found.loss.sum()]), np.array([2.0]), ranked, log_probs

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any, r: Any) -> Any:
        weights = np.append(pairs(h, head, t, r)[0].by_log_prob, [0.0, 0.0])
        dh, dhead = ref.gradients(h, head, t, weights)
        return dh, dhead, None, None, None if r is None else np.repeat(-weights[:, None], 2, 1)

    options = {"loss": kind, "beta": beta, "label_smoothing": smoothing}
    return Case("preference_loss", [h, head, targets, None, reference], options, forward, backward)


def preference_cases() -> list[Case]:
    return [preference_case("dpo"), preference_case("dpo", 0.2), preference_case("orpo")]
