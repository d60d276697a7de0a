"""One call of every op, in all its forms, with the expected results from float64 formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from moe_cases import moe_cases
from ngram_cases import ngram_cases
from norm_cases import norm_cases
from op_case import Case, act, act_slope, integers, normal
from pointwise_cases import pointwise_cases
from preference_cases import preference_cases
from reference import numpy_attention, numpy_dropout
from reference import numpy_ops as ref
from reference.torch_muddformer import depth_mix
from regularized_cases import regularized_cases
from slots_cases import slots_cases
from teacher_cases import teacher_cases
from update_cases import update_cases

ACTIVATIONS = ["silu", "gelu_tanh", "gelu_erf", "relu", "squared_relu"]


def dropout_case(x: Any, residual: Any) -> Case:
    """Return a case with rate 0.3 at the place `here`: only a call whose gradients are wanted applies dropout."""
    mask = numpy_dropout.factors(0.3, "here", *np.ogrid[: x.shape[0], : x.shape[1], : x.shape[2]])
    return Case(
        "dropout",
        [x, residual],
        {"rate": 0.3, "purpose": "here"},
        lambda x, r: x.astype(np.float64) + (0 if r is None else r),
        lambda dy, x, r: (mask * dy, None if r is None else dy),
    )


def linear_case(activation: str, transposed: bool, bias: bool, residual: bool) -> Case:
    def matrix(w: Any) -> Any:
        return w.T if transposed else w

    def forward(x: Any, w: Any, b: Any, r: Any) -> Any:
        return act(activation, ref.linear(x, matrix(w), b)) + (0 if r is None else r)

    def backward(dy: Any, x: Any, w: Any, b: Any, r: Any) -> Any:
        dpre = dy * act_slope(activation, ref.linear(x, matrix(w), b))
        dx, dw, db = ref.linear_backward(dpre, x, matrix(w))
        return dx, matrix(dw), None if b is None else db, None if r is None else dy

    w = normal(17, 23) * 0.3
    inputs = [
        normal(2, 9, 17),
        w.T.copy() if transposed else w,
        normal(23) if bias else None,
        normal(2, 9, 23) if residual else None,
    ]
    return Case("linear", inputs, {"activation": activation, "transposed": transposed}, forward, backward)


def lora_case(rank: int, bias: bool, residual: bool, rate: float = 0.0) -> Case:
    """Return a matrix with its adapter; with a rate, only a call whose gradients are wanted drops elements of x."""
    scale, mask = 1.5, 1.0
    if rate:
        mask = numpy_dropout.factors(rate, "lora", *np.ogrid[:2, :9, :17])

    def forward(x: Any, w: Any, a: Any, b: Any, c: Any, r: Any) -> Any:
        low = scale * ref.linear(ref.linear(x, a), b)
        return ref.linear(x, w, c) + low + (0 if r is None else r)

    def backward(dy: Any, x: Any, w: Any, a: Any, b: Any, c: Any, r: Any) -> Any:
        dx, dw, dc = ref.linear_backward(dy, x, w)
        dropped = mask * x.astype(np.float64)
        du, db, _ = ref.linear_backward(scale * dy, ref.linear(dropped, a), b)
        dropped_dx, da, _ = ref.linear_backward(du, dropped, a)
        return dx + mask * dropped_dx, dw, da, db, None if c is None else dc, None if r is None else dy

    inputs = [
        normal(2, 9, 17),
        normal(17, 23) * 0.3,
        normal(17, rank) * 0.3,
        normal(rank, 23) * 0.3,
        normal(23) if bias else None,
        normal(2, 9, 23) if residual else None,
    ]
    return Case("lora", inputs, {"scale": scale, "rate": rate}, forward, backward)


def rope_case(four_axes: bool, positions: bool, fraction: float, scaling: ref.Scaling | None = None) -> Case:
    heads, dim, rotary = 3, 8, int(8 * fraction)

    def split(x: Any) -> Any:
        return np.asarray(x, np.float64).reshape(2, 7, heads, dim)

    def forward(x: Any, p: Any) -> Any:
        return ref.rope(split(x), p, 500.0, rotary, scaling).reshape(x.shape)

    def backward(dy: Any, x: Any, p: Any) -> Any:
        return ref.rope_backward(split(dy), p, 500.0, rotary, scaling).reshape(x.shape), None

    shape = (2, 7, heads, dim) if four_axes else (2, 7, heads * dim)
    options = {"n_head": heads, "base": 500.0, "fraction": fraction, "max_positions": 40 if positions else 0}
    if scaling is not None:
        options |= dict(zip(("scaling", "factor", "low_freq", "high_freq", "original"), scaling, strict=True))
    return Case(
        "rope", [normal(*shape), integers(40, 2, 7) if positions else None], options, forward, backward
    )


def attention_case(
    groups: int,
    scale: float,
    segments: bool,
    mask: bool,
    scores: tuple[str, int, float] = ("softmax", 0, 0.0),
    window: int = 0,
) -> Case:
    B, T, H, d = 2, 11, 4, 8

    def heads(x: Any, n: int) -> Any:
        return np.asarray(x, np.float64).reshape(B, T, n, d)

    def forward(q: Any, k: Any, v: Any, s: Any, m: Any) -> Any:
        return numpy_attention.attention(
            heads(q, H), heads(k, groups), heads(v, groups), scale or None, s, m, scores, window
        ).reshape(q.shape)

    def backward(dy: Any, q: Any, k: Any, v: Any, s: Any, m: Any) -> Any:
        grads = numpy_attention.attention_backward(
            heads(dy, H), heads(q, H), heads(k, groups), heads(v, groups), scale or None, s, m, scores, window
        )
        return *(g.reshape(x.shape) for g, x in zip(grads, (q, k, v), strict=True)), None, None

    inputs = [
        normal(B, T, H * d),
        normal(B, T, groups * d),
        normal(B, T, groups * d),
        np.sort(integers(3, B, T)) if segments else None,
        integers(2, B, T) if mask else None,
    ]
    options = {"n_head": H, "n_kv_head": groups, "scale": scale, "window": window}
    options.update({"activation": scores[0], "divisor": scores[1], "eps": scores[2]} if scores[1] else {})
    return Case("attention", inputs, options, forward, backward)


def biased_loss_case() -> Case:
    """Return a loss whose bias is one more column of the head, for a channel that is always one."""
    h, head, bias = normal(2, 9, 16), normal(37, 16), normal(37)
    targets = integers(37, 2, 9)
    targets[1, 2] = -1

    def wider(h: Any, head: Any, bias: Any) -> Any:
        return np.pad(h.reshape(-1, 16), ((0, 0), (0, 1)), constant_values=1), np.c_[head, bias]

    def forward(h: Any, head: Any, t: Any, b: Any) -> Any:
        loss, count = ref.cross_entropy(*wider(h, head, b), t.reshape(-1))
        return np.array([loss]), np.array([count]), ref.guessed(*wider(h, head, b), t)

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any) -> Any:
        dh, dhead = ref.cross_entropy_backward(*wider(h, head, b), t.reshape(-1), 1.0)
        return dh[:, :-1].reshape(h.shape), dhead[:, :-1], None, dhead[:, -1]

    return Case("cross_entropy", [h, head, targets, bias], {}, forward, backward)


def loss_case(weighted: bool) -> Case:
    h, head = normal(2, 9, 16), normal(37, 16)
    targets = integers(37, 2, 9)
    targets[0, 3:5] = -100

    def forward(h: Any, head: Any, t: Any, b: Any) -> Any:
        loss, count = ref.cross_entropy(h.reshape(-1, 16), head, t.reshape(-1))
        return np.array([loss]), np.array([count]), ref.guessed(h.reshape(-1, 16), head, t)

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any) -> Any:
        scale = 1.0 if dloss is None else float(dloss[0])
        dh, dhead = ref.cross_entropy_backward(h.reshape(-1, 16), head, t.reshape(-1), scale)
        return dh.reshape(h.shape), dhead, None, None

    case = Case("cross_entropy", [h, head, targets, None], {}, forward, backward)
    return case._replace(options={"dloss": np.array([2.5])}) if weighted else case


def mix_case(static: bool) -> Case:
    """Return one stream of depth_mix (the others: test_depth_mix.py)."""
    D, K, states = 19, 11, 3
    inputs = [normal(1, states)]
    inputs += [None] * 4 if static else [normal(D, K) * 0.3, normal(K, states) * 0.3, normal(D), normal(D)]
    inputs += [None] * 4 + [normal(3, 5, D) for _ in range(states)]

    def torched(inputs: Any) -> Any:
        return [
            None if i is None else torch.tensor(i, dtype=torch.float64, requires_grad=True) for i in inputs
        ]

    def backward(dy: Any, *inputs: Any) -> Any:
        leaves = torched(inputs)
        depth_mix(leaves)[0].backward(torch.tensor(dy, dtype=torch.float64))
        return [None if i is None else i.grad.numpy() for i in leaves]

    return Case("depth_mix", inputs, {}, lambda *i: depth_mix(torched(i))[0].detach().numpy(), backward)


def cases() -> list[Case]:
    x = normal(3, 4, 33)
    glu = [
        Case(
            "glu",
            [x, normal(3, 4, 33)],
            {"activation": a},
            lambda g, u, a=a: act(a, g) * u,
            lambda dy, g, u, a=a: (dy * u * act_slope(a, g), dy * act(a, g)),
        )
        for a in ACTIVATIONS
    ]
    activations = [
        Case(
            "activation",
            [x],
            {"activation": a},
            lambda x, a=a: act(a, x),
            lambda dy, x, a=a: (dy * act_slope(a, x),),
        )
        for a in ACTIVATIONS
    ]
    table, ids = normal(29, 10), integers(29, 3, 7)
    embeddings = [
        Case(
            "embedding",
            [ids, table, None],
            {},
            lambda i, t, r: ref.embedding(i, t),
            lambda dy, i, t, r: (None, ref.embedding_backward(dy, i, 29), None),
        ),
        Case(
            "embedding",
            [ids, table, normal(3, 7, 10)],
            {"scale": 5.7},
            lambda i, t, r: 5.7 * ref.embedding(i, t) + r,
            lambda dy, i, t, r: (None, 5.7 * ref.embedding_backward(dy, i, 29), dy),
        ),
        Case(
            "embedding",
            [None, table, normal(3, 7, 10)],
            {"positions": True},
            lambda i, t, r: t[:7] + r,
            lambda dy, i, t, r: (None, np.pad(dy.sum(0), ((0, 22), (0, 0))), dy),
        ),
    ]
    add = Case(
        "add", [x, normal(3, 4, 33)], {}, lambda a, b: a.astype(np.float64) + b, lambda dy, a, b: (dy, dy)
    )
    dropped = dropout_case(normal(3, 4, 33), None), dropout_case(normal(3, 5, 7), normal(3, 5, 7))
    linears = [
        linear_case("none", False, False, False),
        linear_case("gelu_tanh", False, True, False),
        linear_case("none", True, True, True),
        linear_case("squared_relu", True, False, True),
    ]
    return [
        *norm_cases(),
        *linears,
        *glu,
        *activations,
        *pointwise_cases(),
        *embeddings,
        add,
        *dropped,
        rope_case(False, False, 1.0),
        rope_case(True, True, 1.0),
        rope_case(False, True, 0.5),
        rope_case(False, True, 1.0, ("linear", 3.0, 1.0, 4.0, 8192)),
        rope_case(False, True, 1.0, ("llama3", 8.0, 1.0, 4.0, 50)),
        attention_case(4, 0.0, False, False),
        *(
            attention_case(2, 0.7, True, False, (a, 9, 0.1))
            for a in ("sqrelu", "elu", "norm_sqrelu", "norm_elu")
        ),
        *update_cases(),
        attention_case(2, 0.7, True, False),
        attention_case(1, 0.0, True, True),
        attention_case(2, 0.0, False, False, window=3),
        attention_case(1, 0.0, True, True, ("elu", 9, 0.1), window=1),
        loss_case(False),
        loss_case(True),
        biased_loss_case(),
        *regularized_cases(),
        *teacher_cases(),
        *preference_cases(),
        *slots_cases(),
        *ngram_cases(),
        mix_case(False),
        mix_case(True),
        *moe_cases(),
        lora_case(3, True, True),
        lora_case(20, False, False),
        lora_case(4, False, True, rate=0.3),
    ]
