"""Mixture of experts: routing, the experts, their balance."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def moe_route(
    x: Any,
    w: Any,
    segments: Any = None,
    key_mask: Any = None,
    *,
    top_k: int = 2,
    capacity_factor: float = 0.0,
    capacity_scope: str = "sequence",
    drop_policy: str = "position",
    jitter: float = 0.0,
    layer: int = 0,
) -> Any:
    """The top-k router of a mixture of E experts (Jiang et al. 2024): (gates, experts int32, both [B, T, k], metrics).

    p = softmax(x w); the k largest (ties: the lower expert) share a gate of 1 in proportion to p. x [B, T, D], w
    [D, E]. capacity_factor > 0: an expert takes at most floor(T k factor / E) slots of a sequence (or the ceiling, of
    a shard); of the others the expert becomes -1 and the gate 0. drop_policy: position keeps the first slots, probs
    the largest gates. jitter e: where gradients are wanted the router sees x times uniform numbers of [1 - e, 1 + e],
    drawn by seed, step, sample and layer. metrics float32 [B, 4 E + 3], sums of each sample: slots routed to e before
    dropping (E numbers), probabilities (E), slots that e works on (E), slots dropped at e (E), squared log-sum-exp,
    tokens, entropy in nats. Tokens of segment 0 or mask 0 (int32 [B, T]) are padding: routed and dropped like others,
    but only the slots worked on and dropped count them.
    """
    return apply(
        "moe_route",
        [x, w, segments, key_mask],
        top_k=top_k,
        capacity_factor=capacity_factor,
        capacity_scope=capacity_scope,
        drop_policy=drop_policy,
        jitter=jitter,
        layer=layer,
    )


def moe_route_backward(
    gradient: Any,
    x: Any,
    w: Any,
    segments: Any = None,
    key_mask: Any = None,
    *,
    top_k: int = 2,
    capacity_factor: float = 0.0,
    capacity_scope: str = "sequence",
    drop_policy: str = "position",
    jitter: float = 0.0,
    layer: int = 0,
) -> Any:
    """Gradients (dx, dw, None, None) of moe_route. gradient: of the gates, or (of the gates, None, of the metrics).

    Of the metrics only the sums of probabilities and of the squared log-sum-exp have one.
    """
    return backward(
        "moe_route",
        gradient,
        [x, w, segments, key_mask],
        top_k=top_k,
        capacity_factor=capacity_factor,
        capacity_scope=capacity_scope,
        drop_policy=drop_policy,
        jitter=jitter,
        layer=layer,
    )


def grouped_gemm(
    x: Any,
    gates: Any,
    experts: Any,
    gate: Any,
    up: Any,
    down: Any,
    residual: Any = None,
    *,
    activation: str = "silu",
    full_drop: str = "passthrough",
) -> Any:
    """All experts in one call: y = residual + sum over a token's slots of gates (act(x gate_e) * (x up_e)) down_e.

    x [B, T, D], gates and experts (int32, -1 = none) [B, T, k] as moe_route gives them, gate and up [E, D, F], down
    [E, F, D]. Tokens are sorted by expert inside; experts may be empty or hold all of them. full_drop: a token without
    any expert adds x itself (passthrough) or nothing (zero).
    """
    return apply(
        "grouped_gemm",
        [x, gates, experts, gate, up, down, residual],
        activation=activation,
        full_drop=full_drop,
    )


def grouped_gemm_backward(
    dy: Any,
    x: Any,
    gates: Any,
    experts: Any,
    gate: Any,
    up: Any,
    down: Any,
    residual: Any = None,
    *,
    activation: str = "silu",
    full_drop: str = "passthrough",
) -> Any:
    """Gradients (dx, dgates, None, dgate, dup, ddown, dresidual) of grouped_gemm."""
    return backward(
        "grouped_gemm",
        dy,
        [x, gates, experts, gate, up, down, residual],
        activation=activation,
        full_drop=full_drop,
    )


def moe_balance(
    targets: Any,
    *metrics: Any,
    form: str = "pooled",
    scope: str = "shard",
    balance: float = 0.0,
    z: float = 0.0,
    top_k: int = 2,
) -> Any:
    """Auxiliary losses of a mixture, float64 [S] each: (n (balance A + z Z), n A, n Z), n = counted targets of a shard.

    metrics: those of moe_route, one per layer. form: pooled (one product of averages over all layers, as transformers)
    or per_layer (a sum of per-layer losses, as Megatron-LM). scope: averages over each shard, or over the batch.
    Z = sum over layers of the mean squared log-sum-exp of the router's logits (Zoph et al. 2022).
    """
    options = {"form": form, "scope": scope, "balance": balance, "z": z, "top_k": top_k}
    return apply("moe_balance", [targets, *metrics], **options)


def moe_balance_backward(
    dloss: Any,
    targets: Any,
    *metrics: Any,
    form: str = "pooled",
    scope: str = "shard",
    balance: float = 0.0,
    z: float = 0.0,
    top_k: int = 2,
) -> Any:
    """Gradients (None, dfigures of each layer ...) of the first output, scaled per shard by dloss (None: 1)."""
    options = {"form": form, "scope": scope, "balance": balance, "z": z, "top_k": top_k}
    return backward("moe_balance", dloss, [targets, *metrics], **options)
