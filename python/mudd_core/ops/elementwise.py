"""Ops on elements: activations, gated units, sums."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def activation(x: Any, *, activation: str = "gelu_tanh") -> Any:
    """y = act(x), element by element.

    activation: silu, gelu_tanh, gelu_erf, relu, squared_relu; or by their names in jax.nn relu6, sigmoid, tanh,
    softplus, log_sigmoid, soft_sign, leaky_relu, hard_sigmoid, hard_silu, hard_tanh, elu, selu, squareplus, mish,
    sparse_plus, sparse_sigmoid.
    """
    return apply("activation", [x], activation=activation)


def activation_backward(dy: Any, x: Any, *, activation: str = "gelu_tanh") -> Any:
    """Gradient (dx,) of activation."""
    return backward("activation", dy, [x], activation=activation)


def add(a: Any, b: Any) -> Any:
    """y = a + b, shapes equal."""
    return apply("add", [a, b])


def add_backward(dy: Any, a: Any, b: Any) -> Any:
    """Gradients (da, db) of add."""
    return backward("add", dy, [a, b])


def dropout(x: Any, residual: Any = None, *, rate: float = 0.0, purpose: str = "dropout") -> Any:
    """y = residual + m x / (1 - rate) (Srivastava et al. 2014), m one with probability 1 - rate, else zero.

    x and residual [B, T, D]. Only where a gradient of x is wanted; elsewhere y = residual + x. The draws depend on
    seed, `purpose`, step, sample, position and channel alone.
    """
    return apply("dropout", [x, residual], rate=rate, purpose=purpose)


def dropout_backward(
    dy: Any, x: Any, residual: Any = None, *, rate: float = 0.0, purpose: str = "dropout"
) -> Any:
    """Gradients (dx, dresidual) of dropout, with the draws of the forward pass."""
    return backward("dropout", dy, [x, residual], rate=rate, purpose=purpose)


def glu(gate: Any, up: Any, *, activation: str = "silu") -> Any:
    """y = act(gate) * up (Shazeer 2020). Shapes equal. activation: silu, gelu_tanh, gelu_erf, relu, squared_relu."""
    return apply("glu", [gate, up], activation=activation)


def glu_backward(dy: Any, gate: Any, up: Any, *, activation: str = "silu") -> Any:
    """Gradients (dgate, dup) of glu."""
    return backward("glu", dy, [gate, up], activation=activation)
