"""The fused ops by name. Each takes NumPy arrays (runs at once), tape tensors (runs at once and is recorded), or
values of a graph that is being recorded (runs when planned). `<op>_backward(gradient, *inputs, **options)` returns the
gradients of the inputs, in their order, None for those that have none.

All numbers are float32; indices are int32. Shape letters: B samples, T positions, R = B T rows, D width, F
feed-forward width, H query heads, G key and value heads, hd head width, V vocabulary, S shards. Axes written `...`
may be any. A wrong type raises TypeError, a wrong shape or value ValueError; both name op, argument and rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mudd_core import tape
from mudd_core.recording import Value

__all__ = [
    "activation", "activation_backward", "add", "add_backward", "attention", "attention_backward", "cross_entropy",
    "cross_entropy_backward", "custom", "depth_mix", "depth_mix_backward", "embedding", "embedding_backward", "glu",
    "glu_backward", "grouped_gemm", "grouped_gemm_backward", "layer_norm", "layer_norm_backward", "linear",
    "linear_backward", "lion", "lion_backward", "moe_balance", "moe_balance_backward", "moe_route",
    "moe_route_backward", "pattention", "pattention_backward", "rms_norm", "rms_norm_backward", "rope",
    "rope_backward", "sgd", "sgd_backward",
]  # fmt: skip


# Inputs of each op, in order, for messages; those that may be missing end in '?', the one that may repeat in '*'.
_INPUTS = {
    "activation": ("x",),
    "add": ("a", "b"),
    "attention": ("q", "k", "v", "segments?", "key_mask?", "k_cache?", "v_cache?"),
    "cross_entropy": ("h", "head", "targets", "bias?"),
    "depth_mix": (
        "bias",
        "w1?",
        "w2?",
        "generator_gain?",
        "gain_0?",
        "gain_1?",
        "gain_2?",
        "gain_3?",
        "newest?",
        "states*",
    ),
    "embedding": ("ids?", "table?", "residual?"),
    "glu": ("gate", "up"),
    "grouped_gemm": ("x", "gates", "experts", "gate", "up", "down", "residual?"),
    "layer_norm": ("x", "gain?", "bias?"),
    "linear": ("x", "w", "bias?", "residual?"),
    "lion": ("w", "gradient", "moment"),
    "moe_balance": ("targets", "figures*"),
    "moe_route": ("x", "w", "segments?", "key_mask?"),
    "pattention": ("x", "residual?", *("key", "value", "key_bias?", "value_bias?") * 8),
    "rms_norm": ("x", "gain?"),
    "rope": ("x", "positions?"),
    "sgd": ("w", "gradient", "moment"),
}
_INDICES = {"experts", "ids", "key_mask", "positions", "segments", "targets"}


def _checked(op: str, name: str, value: Any, dtype: str) -> Any:
    """A tensor of the tape as it is, anything else as an array; of another dtype: TypeError."""
    if value is None:
        raise TypeError(f"[{op}] {name}: expected an array, got None")
    array = value if isinstance(value, tape.Tensor) else tape.as_array(value)
    if array.dtype != dtype:
        raise TypeError(f"[{op}] {name}: expected {dtype}, got {array.dtype}")
    return array


def _inputs(op: str, inputs: list[Any]) -> list[Any]:
    checked, labels = [], _INPUTS[op]
    if labels[-1].endswith("*"):
        labels = labels[:-1] + (labels[-1].rstrip("*"),) * (len(inputs) - len(labels) + 1)
    for label, value in zip(labels, inputs, strict=False):  # backward has no caches
        name = label.rstrip("?")
        missing = value is None and name != label
        checked.append(
            None if missing else _checked(op, name, value, "int32" if name in _INDICES else "float32")
        )
    return checked


def _apply(op: str, inputs: list[Any], **options: Any) -> Any:
    recorders = [i.recorder for i in inputs if isinstance(i, Value)]
    if not recorders:
        inputs = _inputs(op, inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    if recorders:
        return recorders[0].apply(op, inputs, options)
    return tape.call_op(op, inputs, options)


def _backward(op: str, gradient: Any, inputs: list[Any], **options: Any) -> Any:
    arrays = [i.data if isinstance(i, tape.Tensor) else i for i in _inputs(op, inputs)]
    if op in ("cross_entropy", "moe_balance"):  # of their outputs only the loss has a gradient, by default 1
        if gradient is not None and np.asarray(gradient).dtype != np.float64:
            raise TypeError(f"[{op}] dloss: expected float64, got {np.asarray(gradient).dtype}")
        others = 1 if op == "cross_entropy" else 2
        gradients = [None if gradient is None else np.asarray(gradient), *[None] * others]
    else:  # of an op with several results: a tuple, None for those that nobody used
        several = gradient if isinstance(gradient, tuple | list) else (gradient,)
        given = [_checked(op, "gradient", g, "float32") if g is not None else None for g in several]
        if all(g is None for g in given):
            raise TypeError(f"[{op}] gradient: expected an array, got None")
        gradients = [g.data if isinstance(g, tape.Tensor) else g for g in given]
        if op in ("lion", "sgd") and len(gradients) == 1:  # of the new weights alone
            gradients.append(None)
        if op == "moe_route":  # experts have none, and figures seldom one
            gradients += [None] * (3 - len(gradients))
    return tape.backward_of(op, arrays, gradients, options)


def custom(forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Any) -> Any:
    """Two NumPy functions as an op, in either executor.

    forward(*inputs) returns one float32 array or a tuple; backward(*output_gradients, *inputs) returns one gradient per
    input (None where there is none). Output shapes are learned from one call on zeros.
    """
    recorders = [i.recorder for i in inputs if isinstance(i, Value)]
    if recorders:
        return recorders[0].custom(forward, backward, list(inputs))
    return tape.call_custom(forward, backward, list(inputs))


def rms_norm(x: Any, gain: Any = None, *, eps: float = 1e-6, heads: int = 1) -> Any:
    """y = x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang and Sennrich 2019). x [..., D], gain [D].

    heads: normalise each of so many equal pieces of the last axis by itself (qk-norm); gain [D / heads].
    A gain of one number is for all channels.
    """
    return _apply("rms_norm", [x, gain], eps=eps, heads=heads)


def rms_norm_backward(dy: Any, x: Any, gain: Any = None, *, eps: float = 1e-6, heads: int = 1) -> Any:
    """Gradients (dx, dgain) of rms_norm."""
    return _backward("rms_norm", dy, [x, gain], eps=eps, heads=heads)


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
    return _apply("layer_norm", [x, gain, bias], eps=eps, gain_offset=gain_offset, scale=scale)


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
    return _backward("layer_norm", dy, [x, gain, bias], eps=eps, gain_offset=gain_offset, scale=scale)


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    activation: str = "none",
    transposed: bool = False,
) -> Any:
    """y = act(x w + bias) + residual. x [..., K], w [K, N] (transposed: [N, K]), bias [N], residual like y.

    activation: none, silu, gelu_tanh, gelu_erf, relu, squared_relu.
    """
    return _apply("linear", [x, w, bias, residual], activation=activation, transposed=transposed)


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
    return _backward("linear", dy, [x, w, bias, residual], activation=activation, transposed=transposed)


def rope(
    x: Any,
    positions: Any = None,
    *,
    n_head: int,
    base: float = 10000.0,
    fraction: float = 1.0,
    max_positions: int = 0,
) -> Any:
    """Rotary positions in the half layout (Su et al. 2021): x [B, T, H*hd], positions int32 [B, T] or 0..T-1.

    fraction: share of each head that is rotated. max_positions: largest position + 1; 0 = T.
    """
    return _apply(
        "rope", [x, positions], n_head=n_head, base=base, fraction=fraction, max_positions=max_positions
    )


def rope_backward(
    dy: Any,
    x: Any,
    positions: Any = None,
    *,
    n_head: int,
    base: float = 10000.0,
    fraction: float = 1.0,
    max_positions: int = 0,
) -> Any:
    """Gradients (dx, None) of rope."""
    return _backward(
        "rope", dy, [x, positions], n_head=n_head, base=base, fraction=fraction, max_positions=max_positions
    )


def glu(gate: Any, up: Any, *, activation: str = "silu") -> Any:
    """y = act(gate) * up (Shazeer 2020). Shapes equal. activation: silu, gelu_tanh, gelu_erf, relu, squared_relu."""
    return _apply("glu", [gate, up], activation=activation)


def glu_backward(dy: Any, gate: Any, up: Any, *, activation: str = "silu") -> Any:
    """Gradients (dgate, dup) of glu."""
    return _backward("glu", dy, [gate, up], activation=activation)


def activation(x: Any, *, activation: str = "gelu_tanh") -> Any:
    """y = act(x), element by element. activation: silu, gelu_tanh, gelu_erf, relu, squared_relu."""
    return _apply("activation", [x], kind=activation)


def activation_backward(dy: Any, x: Any, *, activation: str = "gelu_tanh") -> Any:
    """Gradient (dx,) of activation."""
    return _backward("activation", dy, [x], kind=activation)


def add(a: Any, b: Any) -> Any:
    """y = a + b, shapes equal."""
    return _apply("add", [a, b])


def add_backward(dy: Any, a: Any, b: Any) -> Any:
    """Gradients (da, db) of add."""
    return _backward("add", dy, [a, b])


def embedding(
    ids: Any, table: Any, residual: Any = None, *, positions: bool = False, sinusoids: int = 0
) -> Any:
    """y = table[ids] (+ residual). ids int32 [B, T], table [V, D]. positions: no ids, the row of a token is its t.

    sinusoids: no table, but this many rows of sines and cosines (Vaswani et al. 2017) as wide as the residual: row p
    holds sin(p w) then cos(p w), w from 1 down to 1/10000 in equal ratios.
    """
    return _apply("embedding", [ids, table, residual], positions=positions, sinusoids=sinusoids)


def embedding_backward(
    dy: Any, ids: Any, table: Any, residual: Any = None, *, positions: bool = False, sinusoids: int = 0
) -> Any:
    """Gradients (None, dtable, dresidual) of embedding."""
    return _backward("embedding", dy, [ids, table, residual], positions=positions, sinusoids=sinusoids)


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
) -> Any:
    """softmax(scale q k^T + mask) v by tiles, never T x T (Dao et al. 2022).

    q [B, T, H*hd], k and v [B, T, G*hd]; head h reads group h // (H / G). segments and key_mask int32 [B, T]: a
    query sees keys of its own segment whose mask is 1, and none after itself if causal. A row that sees nothing
    gives zeros. scale 0 means 1 / sqrt(hd). k_cache, v_cache [B, G, Tmax, hd]: decoding; this call's keys and values
    are stored behind the cached ones (tape.cached(length) says how many those are), and all of them are seen.
    activation of the scores s: softmax; sqrelu relu(s)^2 / divisor, elu (elu(s) + 1) / divisor, divisor 0 meaning T;
    norm_sqrelu and norm_elu the same over (eps + their sum over the visible keys) (spec/mup.md a.2).
    """
    inputs = [q, k, v, segments, key_mask, k_cache, v_cache]
    cached = k_cache is not None
    return _apply(
        "attention",
        inputs,
        n_head=n_head,
        n_kv_head=n_kv_head or n_head,
        scale=scale,
        causal=causal,
        cache=cached,
        activation=activation,
        divisor=divisor,
        eps=eps,
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
) -> Any:
    """Gradients (dq, dk, dv, None, None) of attention."""
    return _backward(
        "attention",
        do,
        [q, k, v, segments, key_mask],
        n_head=n_head,
        n_kv_head=n_kv_head or n_head,
        scale=scale,
        causal=causal,
        activation=activation,
        divisor=divisor,
        eps=eps,
    )


def cross_entropy(h: Any, head: Any, targets: Any, bias: Any = None) -> Any:
    """Unembedding, softmax and loss in one: (nats summed per shard float64 [S], counted targets float64 [S]).

    h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits. All
    logits never exist at once.
    """
    return _apply("cross_entropy", [h, head, targets, bias])


def cross_entropy_backward(dloss: Any, h: Any, head: Any, targets: Any, bias: Any = None) -> Any:
    """Gradients (dh, dhead, None), with a bias also dbias, of the summed loss, scaled per shard by dloss (None: 1)."""
    inputs = [h, head, targets] if bias is None else [h, head, targets, bias]
    return _backward("cross_entropy", dloss, inputs)


def pattention(
    x: Any,
    residual: Any,
    key: Any,
    value: Any,
    key_bias: Any = None,
    value_bias: Any = None,
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

    x [..., D], key [n, D], value [n, D2], key_bias [n], value_bias [D2], residual like y (added) or None. more: key,
    value, key_bias, value_bias of further projections of the same x, None where absent; the result is then a tuple.
    norm, with tau = sqrt(zoom or n) and |.| the norm of a row: l2_norm_gelu = gelu(tau a / (|a| + eps)), gelu_l2_norm =
    tau gelu(a) / (|gelu(a)| + eps), l2_norm = tau a / (|a| + eps), softmax = n softmax(a), gelu, gelu_layer_norm
    (deviation with eps). A row of zero norm gives zeros and no gradient. gelu: gelu_tanh or gelu_erf. keep_scores:
    False saves memory and computes a again in backward, the same bits. drop_path: where gradients are wanted, whole
    samples of y are dropped with this probability, the others divided by 1 - drop_path; `purpose` keys the draws.
    """
    return _apply(
        "pattention",
        [x, residual, key, value, key_bias, value_bias, *more],
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
    residual: Any,
    key: Any,
    value: Any,
    key_bias: Any = None,
    value_bias: Any = None,
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
    """Gradients (dx, dresidual, dkey, dvalue, dkey_bias, dvalue_bias, ...) of pattention; dy: one, or a tuple."""
    return _backward(
        "pattention",
        dy,
        [x, residual, key, value, key_bias, value_bias, *more],
        norm=norm,
        gelu=gelu,
        eps=eps,
        zoom=zoom,
        scale_factor=scale_factor,
        keep_scores=keep_scores,
        drop_path=drop_path,
        purpose=purpose,
    )


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
    return _apply(
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
    return _backward(
        "depth_mix",
        dy,
        inputs,
        direct=direct,
        post_norm=post_norm,
        activation=activation,
        eps=eps,
        norm_eps=norm_eps,
    )


def lion(
    w: Any,
    gradient: Any,
    moment: Any,
    *,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    decay: float = 0.0,
) -> Any:
    """One update of Lion (Chen et al. 2023): (new w, new moment), float32 arrays of one shape.

    new w = w - lr sign(beta1 moment + (1 - beta1) gradient) - decay w,
    new moment = beta2 moment + (1 - beta2) gradient.
    Training runs the same kernel over all parameters in one sweep; this is the update by itself.
    """
    return _apply("lion", [w, gradient, moment], lr=lr, beta1=beta1, beta2=beta2, decay=decay)


def lion_backward(
    dw: Any,
    w: Any,
    gradient: Any,
    moment: Any,
    *,
    lr: float = 1e-4,
    beta1: float = 0.9,
    beta2: float = 0.99,
    decay: float = 0.0,
) -> Any:
    """Gradients ((1 - decay) dw, (1 - beta2) dm, beta2 dm); the sign is flat.

    dw: the gradient of the new weights, or a pair (dw, dm) with that of the new moment.
    """
    return _backward("lion", dw, [w, gradient, moment], lr=lr, beta1=beta1, beta2=beta2, decay=decay)


def sgd(
    w: Any, gradient: Any, moment: Any, *, lr: float = 1e-2, momentum: float = 0.9, decay: float = 0.0
) -> Any:
    """One update of SGD with Nesterov momentum (as torch.optim.SGD): (new w, new moment), float32 of one shape.

    new moment = momentum moment + gradient; new w = w - lr (gradient + momentum new moment) - decay w.
    Training runs the same kernel over all parameters in one sweep; this is the update by itself.
    """
    return _apply("sgd", [w, gradient, moment], lr=lr, momentum=momentum, decay=decay)


def sgd_backward(
    dw: Any,
    w: Any,
    gradient: Any,
    moment: Any,
    *,
    lr: float = 1e-2,
    momentum: float = 0.9,
    decay: float = 0.0,
) -> Any:
    """Gradients ((1 - decay) dw, dm - lr (1 + momentum) dw, momentum dm - lr momentum^2 dw).

    dw: the gradient of the new weights, or a pair (dw, dm) with that of the new moment.
    """
    return _backward("sgd", dw, [w, gradient, moment], lr=lr, momentum=momentum, decay=decay)


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
    """The top-k router of a mixture of E experts (Jiang et al. 2024): (gates, experts int32, both [B, T, k], figures).

    p = softmax(x w); the k largest (ties: the lower expert) share a gate of 1 in proportion to p. x [B, T, D], w
    [D, E]. capacity_factor > 0: an expert takes at most floor(T k factor / E) slots of a sequence (or the ceiling, of
    a shard); of the others the expert becomes -1 and the gate 0. drop_policy: position keeps the first slots, probs
    the largest gates. jitter e: where gradients are wanted the router sees x times uniform numbers of [1 - e, 1 + e],
    drawn by seed, step, sample and layer. figures float32 [B, 4 E + 3], sums of each sample: slots routed to e before
    dropping (E numbers), probabilities (E), slots that e works on (E), slots dropped at e (E), squared log-sum-exp,
    tokens, entropy in nats. Tokens of segment 0 or mask 0 (int32 [B, T]) are padding: routed and dropped like others,
    but only the slots worked on and dropped count them.
    """
    return _apply(
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
    """Gradients (dx, dw, None, None) of moe_route. gradient: of the gates, or (of the gates, None, of the figures).

    Of the figures only the sums of probabilities and of the squared log-sum-exp have one.
    """
    return _backward(
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
    return _apply(
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
    return _backward(
        "grouped_gemm",
        dy,
        [x, gates, experts, gate, up, down, residual],
        activation=activation,
        full_drop=full_drop,
    )


def moe_balance(
    targets: Any,
    *figures: Any,
    form: str = "pooled",
    scope: str = "shard",
    balance: float = 0.0,
    z: float = 0.0,
    top_k: int = 2,
) -> Any:
    """Auxiliary losses of a mixture, float64 [S] each: (n (balance A + z Z), n A, n Z), n = counted targets of a shard.

    figures: those of moe_route, one per layer. form: pooled (one product of averages over all layers, as transformers)
    or per_layer (a sum of per-layer losses, as Megatron-LM). scope: averages over each shard, or over the batch.
    Z = sum over layers of the mean squared log-sum-exp of the router's logits (Zoph et al. 2022).
    """
    options = {"form": form, "scope": scope, "balance": balance, "z": z, "top_k": top_k}
    return _apply("moe_balance", [targets, *figures], **options)


def moe_balance_backward(
    dloss: Any,
    targets: Any,
    *figures: Any,
    form: str = "pooled",
    scope: str = "shard",
    balance: float = 0.0,
    z: float = 0.0,
    top_k: int = 2,
) -> Any:
    """Gradients (None, dfigures of each layer ...) of the first output, scaled per shard by dloss (None: 1)."""
    options = {"form": form, "scope": scope, "balance": balance, "z": z, "top_k": top_k}
    return _backward("moe_balance", dloss, [targets, *figures], **options)
