"""Norms of rows, or of the heads of rows."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def rms_norm(x: Any, gain: Any = None, *, eps: float = 1e-6, heads: int = 1) -> Any:
    """y = x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang and Sennrich 2019). x [..., D], gain [D].

    heads: normalise each of this many equal pieces of the last axis on its own (qk-norm); gain [D / heads].
    A gain of one number is for all channels.
    """
    return apply("rms_norm", [x, gain], eps=eps, heads=heads)


def rms_norm_backward(dy: Any, x: Any, gain: Any = None, *, eps: float = 1e-6, heads: int = 1) -> Any:
    """Gradients (dx, dgain) of rms_norm."""
    return backward("rms_norm", dy, [x, gain], eps=eps, heads=heads)


def layer_norm(
    x: Any,
    gain: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    gain_offset: float = 0.0,
    scale: float = 1.0,
) -> Any:
    """y = scale ((x - mean) / sqrt(var + eps) (gain_offset + gain) + bias) over the last axis (Ba et al. 2016).

    x [..., D], gain and bias [D] (absent: ones and zeros). gain_offset 1: `gain` is the distance from 1.
    """
    return apply("layer_norm", [x, gain, bias], eps=eps, gain_offset=gain_offset, scale=scale)


def layer_norm_backward(
    dy: Any,
    x: Any,
    gain: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    gain_offset: float = 0.0,
    scale: float = 1.0,
) -> Any:
    """Gradients (dx, dgain, dbias) of layer_norm."""
    return backward("layer_norm", dy, [x, gain, bias], eps=eps, gain_offset=gain_offset, scale=scale)
