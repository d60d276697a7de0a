"""Weighted sums of all earlier states of a model."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def depth_mix(
    bias: Any,
    w1: Any = None,
    w2: Any = None,
    generator_gain: Any = None,
    gain_0: Any = None,
    gain_1: Any = None,
    gain_2: Any = None,
    gain_3: Any = None,
    newest: Any = None,
    *states: Any,
    direct: bool = False,
    post_norm: bool = False,
    activation: str = "gelu_tanh",
    eps: float = 1e-6,
    norm_eps: float = 1e-6,
) -> Any:
    """C streams as weighted sums of l earlier states, the weights made per token (Xiao et al. 2025, MUDDFormer).

    states: l arrays [..., D]; X = newest where given, else the last of them. With w1 [D, K] and w2 [K, C*l] the
    weights are A = act(rms(X; generator_gain) w1) w2 + bias, column c*l + j for stream c and state j; without, A =
    bias [C, l]. Stream c = sum_j A[c, j] states[j] (+ X if direct), then rms-normalised with gain_c [D] where given
    (leading streams only). post_norm: the last stream is X + rms(sum; its gain) instead. C is 1 to 4; returns one
    array for C = 1, else a tuple. eps: of the generator's norm; norm_eps: of the streams'.
    """
    inputs = [bias, w1, w2, generator_gain, gain_0, gain_1, gain_2, gain_3, newest, *states]
    return apply(
        "depth_mix",
        inputs,
        direct=direct,
        post_norm=post_norm,
        activation=activation,
        eps=eps,
        norm_eps=norm_eps,
    )


def depth_mix_backward(
    dy: Any,
    bias: Any,
    w1: Any = None,
    w2: Any = None,
    generator_gain: Any = None,
    gain_0: Any = None,
    gain_1: Any = None,
    gain_2: Any = None,
    gain_3: Any = None,
    newest: Any = None,
    *states: Any,
    direct: bool = False,
    post_norm: bool = False,
    activation: str = "gelu_tanh",
    eps: float = 1e-6,
    norm_eps: float = 1e-6,
) -> Any:
    """Gradients of all inputs of depth_mix, in their order. dy: gradient of the stream, or a tuple, None for zero."""
    inputs = [bias, w1, w2, generator_gain, gain_0, gain_1, gain_2, gain_3, newest, *states]
    return backward(
        "depth_mix",
        dy,
        inputs,
        direct=direct,
        post_norm=post_norm,
        activation=activation,
        eps=eps,
        norm_eps=norm_eps,
    )
