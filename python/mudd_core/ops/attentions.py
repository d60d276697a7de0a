"""Attention to other tokens, and to learned ones."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def attention(
    q: Any,
    k: Any,
    v: Any,
    segments: Any = None,
    key_mask: Any = None,
    k_cache: Any = None,
    v_cache: Any = None,
    *,
    n_head: int,
    n_kv_head: int = 0,
    scale: float = 0.0,
    causal: bool = True,
    activation: str = "softmax",
    divisor: int = 0,
    eps: float = 1e-5,
    ring: bool = False,
    dropout: float = 0.0,
    purpose: str = "dropout",
) -> Any:
    """softmax(scale q k^T + mask) v by tiles, never T x T (Dao et al. 2022).

    q [B, T, H*hd], k and v [B, T, G*hd]; head h reads group h // (H / G). segments and key_mask int32 [B, T]: a
    query sees keys of its own segment whose mask is 1, and none after itself if causal. A row that sees nothing
    gives zeros. scale 0 means 1 / sqrt(hd). k_cache, v_cache [B, G, Tmax, hd]: decoding; this call's keys and values
    are stored behind the cached ones (scopes.cached(length) says how many those are), and all of them are seen.
    ring: a single token behind Tmax others takes the place of the oldest one. dropout: where gradients are wanted, a
    probability is zero with this chance and divided by 1 - dropout else; `purpose` keys the draws.
    activation of the scores s: softmax; sqrelu relu(s)^2 / divisor, elu (elu(s) + 1) / divisor, divisor 0 meaning T;
    norm_sqrelu and norm_elu the same over (eps + their sum over the visible keys) (docs/maths/mup.md, 1.2).
    """
    inputs = [q, k, v, segments, key_mask, k_cache, v_cache]
    return apply(
        "attention",
        inputs,
        n_head=n_head,
        n_kv_head=n_kv_head,
        scale=scale,
        causal=causal,
        activation=activation,
        divisor=divisor,
        eps=eps,
        ring=ring,
        dropout=dropout,
        purpose=purpose,
    )


def attention_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    segments: Any = None,
    key_mask: Any = None,
    *,
    n_head: int,
    n_kv_head: int = 0,
    scale: float = 0.0,
    causal: bool = True,
    activation: str = "softmax",
    divisor: int = 0,
    eps: float = 1e-5,
    dropout: float = 0.0,
    purpose: str = "dropout",
) -> Any:
    """Gradients (dq, dk, dv, None, None) of attention."""
    return backward(
        "attention",
        do,
        [q, k, v, segments, key_mask],
        n_head=n_head,
        n_kv_head=n_kv_head,
        scale=scale,
        causal=causal,
        activation=activation,
        divisor=divisor,
        eps=eps,
        dropout=dropout,
        purpose=purpose,
    )


def pattention(
    x: Any,
    key: Any,
    value: Any,
    key_bias: Any = None,
    value_bias: Any = None,
    residual: Any = None,
    *more: Any,
    norm: str = "l2_norm_gelu",
    gelu: str = "gelu_tanh",
    eps: float = 1e-5,
    zoom: float = 0.0,
    scale_factor: float = 1.0,
    keep_scores: bool = True,
    drop_path: float = 0.0,
    purpose: str = "drop_path",
) -> Any:
    """Token-parameter attention (Wang et al. 2024): y = scale_factor Theta(x key^T + key_bias) value + value_bias.

    x [..., D], key [n, D], value [n, D2], key_bias [n], value_bias [D2], residual like y (added). more: key,
    value, key_bias, value_bias of further projections of the same x, None where absent; the result is then a tuple.
    norm, with tau = sqrt(zoom or n) and |.| the norm of a row: l2_norm_gelu = gelu(tau a / (|a| + eps)), gelu_l2_norm =
    tau gelu(a) / (|gelu(a)| + eps), l2_norm = tau a / (|a| + eps), softmax = n softmax(a), gelu, gelu_layer_norm
    (deviation with eps). A row of zero norm gives zeros and no gradient. gelu: gelu_tanh or gelu_erf. keep_scores:
    False saves memory and computes a again in backward, the same bits. drop_path: where gradients are wanted, whole
    samples of y are dropped with this probability, the others divided by 1 - drop_path; `purpose` keys the draws.
    """
    return apply(
        "pattention",
        [x, key, value, key_bias, value_bias, residual, *more],
        norm=norm,
        gelu=gelu,
        eps=eps,
        zoom=zoom,
        scale_factor=scale_factor,
        keep_scores=keep_scores,
        drop_path=drop_path,
        purpose=purpose,
    )


def pattention_backward(
    dy: Any,
    x: Any,
    key: Any,
    value: Any,
    key_bias: Any = None,
    value_bias: Any = None,
    residual: Any = None,
    *more: Any,
    norm: str = "l2_norm_gelu",
    gelu: str = "gelu_tanh",
    eps: float = 1e-5,
    zoom: float = 0.0,
    scale_factor: float = 1.0,
    keep_scores: bool = True,
    drop_path: float = 0.0,
    purpose: str = "drop_path",
) -> Any:
    """Gradients (dx, dkey, dvalue, dkey_bias, dvalue_bias, dresidual, ...) of pattention; dy: one, or a tuple."""
    return backward(
        "pattention",
        dy,
        [x, key, value, key_bias, value_bias, residual, *more],
        norm=norm,
        gelu=gelu,
        eps=eps,
        zoom=zoom,
        scale_factor=scale_factor,
        keep_scores=keep_scores,
        drop_path=drop_path,
        purpose=purpose,
    )
