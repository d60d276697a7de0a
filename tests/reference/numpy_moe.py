"""Formulas of a mixture of experts in float64: router with capacity, experts, auxiliary losses, and their gradients.

Written from Jiang et al. 2024, the MLPerf Mixtral reference (capacity per sequence, passthrough) and Megatron-LM
(capacity per shard, keeping the largest gates): loops over tokens, nothing sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Array = NDArray[Any]


def real(x: Array, segments: Array | None, key_mask: Array | None) -> Array:
    """Return True for the tokens [B, T] that are not padding."""
    out = np.ones(x.shape[:2], bool)
    for given in (segments, key_mask):
        out &= np.ones_like(out) if given is None else given != 0
    return out


def kept(
    chosen: Array, gates: F64, n_expert: int, factor: float, scope: str = "sequence", policy: str = "position"
) -> Array:
    """Return True for the slots [B, T, k] that stay within the capacity; factor 0: all."""
    stay = np.ones(chosen.shape, bool)
    if factor <= 0:
        return stay
    B, T, k = chosen.shape
    groups = [range(B)] if scope == "shard" else [range(b, b + 1) for b in range(B)]
    for group in groups:
        slots = [(b, t, r) for b in group for t in range(T) for r in range(k)]
        share = len(group) * T * k / n_expert * factor
        limit = math.ceil(share) if scope == "shard" else math.floor(share)
        for e in range(n_expert):
            mine = [s for s in slots if chosen[s] == e]
            if policy == "probs":
                mine.sort(key=lambda s: -gates[s])  # stable: the earlier slot wins a tie
            for slot in mine[limit:]:
                stay[slot] = False
    return stay


def route(
    x: Array,
    w: Array,
    k: int,
    counts: Array,
    *,
    capacity_factor: float = 0.0,
    capacity_scope: str = "sequence",
    drop_policy: str = "position",
) -> Any:
    """Return (gates, experts with -1 for dropped, metrics [B, 4 E + 3], probabilities, gates and experts undropped)."""
    z = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
    top = z.max(-1, keepdims=True)
    lse = np.log(np.exp(z - top).sum(-1, keepdims=True)) + top
    p = np.exp(z - lse)
    chosen = np.argsort(-p, -1, kind="stable")[..., :k].astype(np.int32)
    picked = np.take_along_axis(p, chosen, -1)
    gates = picked / picked.sum(-1, keepdims=True)
    stay = kept(chosen, gates, z.shape[-1], capacity_factor, capacity_scope, drop_policy)
    E = z.shape[-1]
    hot = np.eye(E)[chosen]
    real_tokens = counts[..., None]
    metrics = np.concatenate(
        [
            (hot * real_tokens[..., None]).sum((1, 2)),
            (p * real_tokens).sum(1),
            (hot * stay[..., None]).sum((1, 2)),
            (hot * ~stay[..., None]).sum((1, 2)),
            (lse**2 * real_tokens).sum(1),
            real_tokens.sum(1),
            (-(p * np.log(p)).sum(-1, keepdims=True) * real_tokens).sum(1),
        ],
        axis=1,
    )
    return gates * stay, np.where(stay, chosen, -1), metrics, p, gates, chosen, stay, lse


def route_backward(
    dgates: Array, dfigures: Array, x: Array, w: Array, k: int, counts: Array, **capacity: Any
) -> Any:
    """Return (dx, dw)."""
    _, _, _, p, gates, chosen, stay, lse = route(x, w, k, counts, **capacity)
    E = p.shape[-1]
    dg = np.asarray(dgates, np.float64) * stay
    dchosen = gates * (dg - (gates * dg).sum(-1, keepdims=True))
    dz = (np.eye(E)[chosen] * dchosen[..., None]).sum(-2)
    G = np.asarray(dfigures, np.float64)[:, None, E : 2 * E]
    extra = (
        p * (G - (G * p).sum(-1, keepdims=True))
        + 2 * np.asarray(dfigures, np.float64)[:, None, 4 * E, None] * lse * p
    )
    dz += extra * counts[..., None]
    return dz @ np.asarray(w, np.float64).T, np.einsum("btd,bte->de", np.asarray(x, np.float64), dz)


def _slots(experts: Array) -> list[tuple[int, int, int]]:
    return [(b, t, r) for b, t, r in np.ndindex(experts.shape) if experts[b, t, r] >= 0]


def experts(
    x: Array,
    gates: Array,
    chosen: Array,
    gate: Array,
    up: Array,
    down: Array,
    residual: Array | None,
    *,
    activation: Callable[[Any], Any],
    passthrough: bool,
) -> F64:
    """Return y [B, T, D]."""
    y = np.zeros(x.shape) if residual is None else np.asarray(residual, np.float64).copy()
    x_, gate, up, down = (np.asarray(a, np.float64) for a in (x, gate, up, down))
    for b, t, r in _slots(chosen):
        e = chosen[b, t, r]
        y[b, t] += gates[b, t, r] * ((activation(x_[b, t] @ gate[e]) * (x_[b, t] @ up[e])) @ down[e])
    return y + (chosen < 0).all(-1)[..., None] * x_ if passthrough else y


def _of_adapters(factors: Sequence[Array | None]) -> list[tuple[int, slice, Any, Any]]:
    """Return (stack, rows of B, A, B of the stack) of each adapted stack: gate, up, down."""
    gate_up_a, gate_up_b, down_a, down_b = (
        None if one is None else np.asarray(one, np.float64) for one in factors
    )
    found = []
    for stack, part, a, b in (
        (0, 0, gate_up_a, gate_up_b),
        (1, 1, gate_up_a, gate_up_b),
        (2, 0, down_a, down_b),
    ):
        if a is not None and b is not None:
            rows = slice(part * a.shape[-1], (part + 1) * a.shape[-1])
            found.append((stack, rows, a, b[:, rows]))
    return found


def adapted(given: Sequence[Any], scale: float) -> list[Any]:
    """Return the inputs of `experts` with scale A B added to the stacks. given: these inputs and four factors."""
    inputs = list(given[:7])
    for stack, _, a, b in _of_adapters(given[7:]):
        inputs[3 + stack] = np.asarray(inputs[3 + stack], np.float64) + scale * a @ b
    return inputs


def adapted_backward(gradients: Sequence[F64], factors: Sequence[Array | None], scale: float) -> list[Any]:
    """Return the gradients of the four factors. gradients: of the three stacks."""
    found: list[Any] = [None if one is None else np.zeros(one.shape) for one in factors]
    for stack, rows, a, b in _of_adapters(factors):
        place = 2 if stack == 2 else 0
        found[place] += scale * gradients[stack] @ b.swapaxes(1, 2)
        found[place + 1][:, rows] += scale * a.swapaxes(1, 2) @ gradients[stack]
    return found


def experts_backward(
    dy: Array,
    x: Array,
    gates: Array,
    chosen: Array,
    gate: Array,
    up: Array,
    down: Array,
    residual: Array | None,
    *,
    activation: Callable[[Any], Any],
    slope: Callable[[Any], Any],
    passthrough: bool,
) -> Any:
    """Return (dx, dgates, None, dgate, dup, ddown, dresidual)."""
    x_, dy_, gate, up, down = (np.asarray(a, np.float64) for a in (x, dy, gate, up, down))
    dx = (chosen < 0).all(-1)[..., None] * dy_ if passthrough else np.zeros(x.shape)
    dgates, dgate, dup, ddown = (
        np.zeros(gates.shape),
        np.zeros(gate.shape),
        np.zeros(up.shape),
        np.zeros(down.shape),
    )
    for b, t, r in _slots(chosen):
        e, g, row = chosen[b, t, r], float(gates[b, t, r]), x_[b, t]
        a, u = row @ gate[e], row @ up[e]
        h, dh = activation(a) * u, down[e] @ dy_[b, t]
        dgates[b, t, r] = dh @ h
        da, du = g * dh * u * slope(a), g * dh * activation(a)
        dx[b, t] += gate[e] @ da + up[e] @ du
        dgate[e] += np.outer(row, da)
        dup[e] += np.outer(row, du)
        ddown[e] += g * np.outer(h, dy_[b, t])
    return dx, dgates, None, dgate, dup, ddown, None if residual is None else dy_


def balance(metrics: Sequence[Array], n_expert: int, k: int, form: str) -> tuple[float, float, list[F64]]:
    """Return (A, Z, slopes of A by the summed probabilities of each layer) over all samples of the metrics."""
    E = n_expert
    sums = [np.asarray(f, np.float64).sum(0) for f in metrics]
    z = sum(float(s[4 * E] / s[4 * E + 1]) for s in sums)
    if form == "pooled":
        tokens = sum(s[4 * E + 1] for s in sums)
        share = sum(s[:E] for s in sums) / tokens
        mean = sum(s[E : 2 * E] for s in sums) / tokens
        return float(E * (share * mean).sum()), z, [E * share / tokens for _ in sums]
    slopes = [E * s[:E] / (k * s[4 * E + 1]) / s[4 * E + 1] for s in sums]
    total = sum(float((slope * s[E : 2 * E]).sum()) for slope, s in zip(slopes, sums, strict=True))
    return total, z, slopes


def balance_backward(
    metrics: Sequence[Array], n_expert: int, k: int, form: str, a_scale: float, z_scale: float
) -> list[F64]:
    """Return the gradient of a_scale A + z_scale Z by every metric; counts have none."""
    _, _, slopes = balance(metrics, n_expert, k, form)
    out = []
    for f, slope in zip(metrics, slopes, strict=True):
        d = np.zeros(f.shape)
        d[:, n_expert : 2 * n_expert] = a_scale * slope
        d[:, 4 * n_expert] = z_scale / np.asarray(f, np.float64)[:, 4 * n_expert + 1].sum()
        out.append(d)
    return out
