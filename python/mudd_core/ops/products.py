"""Matrix products with weights: projections, and the loss over the vocabulary."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    activation: str = "none",
    transposed: bool = False,
    full_precision: bool = False,
) -> Any:
    """y = act(x w + bias) + residual. x [..., K], w [K, N] (transposed: [N, K]), bias [N], residual like y.

    activation: none, silu, gelu_tanh, gelu_erf, relu, squared_relu. full_precision: y stays fp32 in a bf16 graph, as
    it does with a residual.
    """
    return apply(
        "linear",
        [x, w, bias, residual],
        activation=activation,
        transposed=transposed,
        full_precision=full_precision,
    )


def linear_backward(
    dy: Any,
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    activation: str = "none",
    transposed: bool = False,
) -> Any:
    """Gradients (dx, dw, dbias, dresidual) of linear."""
    return backward("linear", dy, [x, w, bias, residual], activation=activation, transposed=transposed)


def cross_entropy(h: Any, head: Any, targets: Any, bias: Any = None) -> Any:
    """Unembedding, softmax and loss in one: (nats summed per shard float64 [S], counted targets float64 [S], guessed).

    h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits. All
    logits never exist at once. guessed float32 [B, 2]: the targets of each sample that have the largest logit (the
    first of equal ones), and their share of its counted targets.
    """
    return apply("cross_entropy", [h, head, targets, bias])


def cross_entropy_backward(dloss: Any, h: Any, head: Any, targets: Any, bias: Any = None) -> Any:
    """Gradients (dh, dhead, None), with a bias also dbias, of the summed loss, scaled per shard by dloss (None: 1)."""
    inputs = [h, head, targets] if bias is None else [h, head, targets, bias]
    return backward("cross_entropy", dloss, inputs)
