"""Cases of ops.preference_loss: pairs of answers with ignored targets, and a pair that has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case, integers, normal
from reference import numpy_preferences as ref

WEIGHT = 0.25  # of all targets of a chosen sample


def preference_case(kind: str, smoothing: float = 0.0, *, of_all: bool = False) -> Case:
    """Return a case of three pairs; the last pair has an answer without targets, so it is not counted.

    of_all: the first three positions are no part of the chosen answer, but have a loss.
    """
    h, head, targets = normal(6, 5, 16), normal(37, 16) * 0.3, integers(37, 6, 5)
    targets[:4, :2], targets[1, 3:], targets[5] = -1, -100, -1
    reference = normal(6, 2) - 4 if kind == "dpo" else None
    nll = np.zeros((6, 5), np.float32) if of_all else None
    if nll is not None:
        nll[:, 1], nll[::2, 0], nll[::2, 2:4] = 5, 3, WEIGHT / 2
    beta = 0.4

    def answer(t: Any) -> Any:
        """Return the targets of the answers."""
        return np.where((np.arange(5) < 3) & (np.arange(6) % 2 == 0)[:, None], -1, t) if of_all else t

    def pairs(h: Any, head: Any, t: Any, r: Any) -> tuple[ref.Pairs, Any]:
        found, counts = ref.log_probs(h, head, answer(t))
        given = None if r is None else r[:4].astype(np.float64).sum(1)
        result = ref.pair_losses(kind, beta, smoothing, found[:4], counts[:4], given)
        if of_all:  # the weighted sum of all targets replaces the mean of the answer
            every, means = ref.log_probs(h, head, t)[0][:4:2], (found[:4] / counts[:4])[::2]
            by = result.by_log_prob.copy()
            by[::2] += 1 / counts[:4:2] - WEIGHT
            result = ref.Pairs(result.loss + means - WEIGHT * every, result.margin, by)
        return result, found

    def forward(h: Any, head: Any, t: Any, b: Any, r: Any, n: Any, s: Any) -> Any:
        found, log_probs = pairs(h, head, t, r)
        ranked = np.zeros((6, 2))
        ranked[:4:2] = np.stack([found.margin > 0, found.margin], -1)
        return np.array([found.loss.sum()]), np.array([2.0]), ranked, log_probs

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any, r: Any, n: Any, s: Any) -> Any:
        weights = np.append(pairs(h, head, t, r)[0].by_log_prob, [0.0, 0.0])
        dh, dhead = ref.gradients(h, head, answer(t), weights)
        if of_all:
            others = np.where(answer(t) < 0, t, -1)
            more = ref.gradients(h, head, others, np.array([-WEIGHT, 0, -WEIGHT, 0, 0, 0]))
            dh, dhead = dh + more[0], dhead + more[1]
        dr = None if r is None else np.repeat(-weights[:, None], 2, 1)
        return dh, dhead, None, None, dr, None if n is None else np.zeros_like(n), None

    options = {"loss": kind, "beta": beta, "label_smoothing": smoothing}
    return Case("preference_loss", [h, head, targets, None, reference, nll, None], options, forward, backward)


def apart(a: Any) -> Any:
    """Return the answers [8, x, ...] of samples [4, 2 x, ...] with two answers each, chosen and rejected by turns."""
    split = a.reshape(2, 2, 2, a.shape[1] // 2, *a.shape[2:])
    return np.moveaxis(split, 1, 2).reshape(8, a.shape[1] // 2, *a.shape[2:])


def together(a: Any) -> Any:
    """Return the samples [4, 2 x, ...] of answers [8, x, ...]: the inverse of `apart`."""
    return np.moveaxis(a.reshape(2, 2, 2, *a.shape[1:]), 1, 2).reshape(4, 2 * a.shape[1], *a.shape[2:])


def packed_case(kind: str) -> Case:
    """Return a case of four pairs in four samples."""
    h, head, targets = normal(4, 10, 16), normal(37, 16) * 0.3, integers(37, 4, 10)
    targets[:, ::5], targets[1, 3] = -1, -100
    segments = np.tile(np.repeat(np.array([1, 2], np.int32), 5), (4, 1))
    reference = normal(4, 4) - 4 if kind == "dpo" else None
    beta = 0.4

    def pairs(h: Any, head: Any, t: Any, r: Any) -> tuple[ref.Pairs, Any]:
        found, counts = ref.log_probs(apart(h), head, apart(t))
        given = None if r is None else apart(r).astype(np.float64).sum(1)
        return ref.pair_losses(kind, beta, 0.0, found, counts, given), found

    def forward(h: Any, head: Any, t: Any, b: Any, r: Any, n: Any, s: Any) -> Any:
        found, log_probs = pairs(h, head, t, r)
        ranked = np.zeros((4, 2))
        ranked[::2] = np.stack([found.margin > 0, found.margin], -1).reshape(2, 2, 2).sum(1)
        return np.array([found.loss.sum()]), np.array([4.0]), ranked, together(log_probs[:, None]).reshape(-1)

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any, r: Any, n: Any, s: Any) -> Any:
        weights = pairs(h, head, t, r)[0].by_log_prob
        dh, dhead = ref.gradients(apart(h), head, apart(t), weights)
        dr = None if r is None else together(np.repeat(-weights[:, None], 2, 1))
        return together(dh), dhead, None, None, dr, None, None

    options = {"loss": kind, "beta": beta, "pairs": 2}
    return Case(
        "preference_loss", [h, head, targets, None, reference, None, segments], options, forward, backward
    )


def preference_cases() -> list[Case]:
    cases = [preference_case("dpo"), preference_case("dpo", 0.2), preference_case("orpo")]
    return [*cases, preference_case("orpo", of_all=True), packed_case("dpo"), packed_case("orpo")]
