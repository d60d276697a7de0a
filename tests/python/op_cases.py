"""One call of every op, in all its forms, with what the float64 formulas say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from reference import numpy_moe as moe
from reference import numpy_ops as ref
from reference.torch_muddformer import depth_mix

F32 = NDArray[np.float32]
rng = np.random.default_rng(11)


def normal(*shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int) -> NDArray[np.int32]:
    return rng.integers(0, high, shape).astype(np.int32)


class Case(NamedTuple):
    """One call of an op with what the float64 formulas say of it."""

    op: str
    inputs: list[Any]
    options: dict[str, Any]
    forward: Callable[..., Any]  # of the inputs
    backward: Callable[..., Any]  # of dy and the inputs: a gradient or None per input


def act(name: str, x: Any) -> Any:
    """Activation in float64."""
    x = np.asarray(x, np.float64)
    return {
        "none": lambda: x,
        "silu": lambda: ref.silu(x),
        "gelu_tanh": lambda: ref.gelu(x, "tanh"),
        "gelu_erf": lambda: ref.gelu(x, "erf"),
        "relu": lambda: np.maximum(x, 0),
        "squared_relu": lambda: np.maximum(x, 0) ** 2,
    }[name]()


def act_slope(name: str, x: Any) -> Any:
    """Derivative of the activation by complex-free central differences in float64, exact to 1e-9."""
    x = np.asarray(x, np.float64)
    h = 1e-5
    return (act(name, x + h) - act(name, x - h)) / (2 * h)


SLOT_NORMS = ["l2_norm_gelu", "gelu_l2_norm", "l2_norm", "softmax", "gelu", "gelu_layer_norm"]
ACTIVATIONS = ["silu", "gelu_tanh", "gelu_erf", "relu", "squared_relu"]


def by_heads(dy: Any, x: Any, gain: Any, heads: int) -> Any:
    """Backward of rms_norm over each head by itself."""
    pieces = (*x.shape[:-1], heads, x.shape[-1] // heads)
    dx, dgain = ref.rms_norm_backward(dy.reshape(pieces), x.reshape(pieces), gain)
    return dx.reshape(x.shape), dgain


def update_cases() -> list[Case]:
    """The optimizers that are ops."""
    w, g, m = normal(3, 4, 33), normal(3, 4, 33), normal(3, 4, 33)
    lion = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "decay": 0.02}
    sgd = {"lr": 0.01, "momentum": 0.8, "decay": 0.02}
    return [
        Case("lion", [w, g, m], lion, lambda w, g, m: ref.lion(w, g, m, **lion),
             lambda d, w, g, m: (d[0] * 0.98, 0.05 * d[1], 0.95 * d[1])),
        Case("sgd", [w, g, m], sgd, lambda w, g, m: ref.sgd(w, g, m, **sgd),
             lambda d, w, g, m: (d[0] * 0.98, d[1] - 0.018 * d[0], 0.8 * d[1] - 0.0064 * d[0])),
    ]  # fmt: skip


def norm_cases() -> list[Case]:
    x, gain, bias = normal(3, 5, 19), normal(19), normal(19)
    ones, zeros = np.ones(19), np.zeros(19)
    return [
        Case("rms_norm", [x, gain], {"eps": 1e-3}, lambda x, g: ref.rms_norm(x, g, 1e-3),
             lambda dy, x, g: ref.rms_norm_backward(dy, x, g, 1e-3)),
        Case("rms_norm", [x, None], {}, lambda x, g: ref.rms_norm(x, ones),
             lambda dy, x, g: (ref.rms_norm_backward(dy, x, ones)[0], None)),
        Case("rms_norm", [normal(3, 5, 4 * 19), gain], {"heads": 4},
             lambda x, g: ref.rms_norm(x.reshape(3, 5, 4, 19), g).reshape(x.shape),
             lambda dy, x, g: by_heads(dy, x, g, 4)),
        *(Case("rms_norm", [normal(3, 5, h * 19), normal(1)], {"heads": h},
               lambda x, g, h=h: ref.rms_norm(x.reshape(3, 5, h, 19), g * ones).reshape(x.shape),
               lambda dy, x, g, h=h: (lambda dx, dg: (dx, dg.sum(keepdims=True)))(*by_heads(dy, x, g * ones, h)))
          for h in (1, 3)),
        Case("layer_norm", [x, gain, bias], {"eps": 1e-3}, lambda x, g, b: ref.layer_norm(x, g, b, 1e-3),
             lambda dy, x, g, b: ref.layer_norm_backward(dy, x, g, 1e-3)),
        Case("layer_norm", [x, gain, bias], {"gain_offset": 1.0, "scale": 0.25},
             lambda x, g, b: ref.layer_norm(x, (1 + g) / 4, b / 4),
             lambda dy, x, g, b: np.array(ref.layer_norm_backward(dy, x, (1 + g) / 4), object) / (1, 4, 4)),
        Case("layer_norm", [x, None, None], {}, lambda x, g, b: ref.layer_norm(x, ones, zeros),
             lambda dy, x, g, b: (ref.layer_norm_backward(dy, x, ones)[0], None, None)),
    ]  # fmt: skip


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
    inputs = [normal(2, 9, 17), w.T.copy() if transposed else w, normal(23) if bias else None,
              normal(2, 9, 23) if residual else None]  # fmt: skip
    return Case("linear", inputs, {"activation": activation, "transposed": transposed}, forward, backward)


def rope_case(four_axes: bool, positions: bool, fraction: float) -> Case:
    heads, dim, rotary = 3, 8, int(8 * fraction)

    def split(x: Any) -> Any:
        return np.asarray(x, np.float64).reshape(2, 7, heads, dim)

    def forward(x: Any, p: Any) -> Any:
        return ref.rope(split(x), p, 500.0, rotary).reshape(x.shape)

    def backward(dy: Any, x: Any, p: Any) -> Any:
        return ref.rope_backward(split(dy), p, 500.0, rotary).reshape(x.shape), None

    shape = (2, 7, heads, dim) if four_axes else (2, 7, heads * dim)
    options = {"n_head": heads, "base": 500.0, "fraction": fraction, "max_positions": 40 if positions else 0}
    return Case(
        "rope", [normal(*shape), integers(40, 2, 7) if positions else None], options, forward, backward
    )


def attention_case(
    groups: int,
    scale: float,
    segments: bool,
    mask: bool,
    scores: tuple[str, int, float] = ("softmax", 0, 0.0),
) -> Case:
    B, T, H, d = 2, 11, 4, 8

    def heads(x: Any, n: int) -> Any:
        return np.asarray(x, np.float64).reshape(B, T, n, d)

    def forward(q: Any, k: Any, v: Any, s: Any, m: Any) -> Any:
        return ref.attention(
            heads(q, H), heads(k, groups), heads(v, groups), scale or None, s, m, scores
        ).reshape(q.shape)

    def backward(dy: Any, q: Any, k: Any, v: Any, s: Any, m: Any) -> Any:
        grads = ref.attention_backward(
            heads(dy, H), heads(q, H), heads(k, groups), heads(v, groups), scale or None, s, m, scores
        )
        return *(g.reshape(x.shape) for g, x in zip(grads, (q, k, v), strict=True)), None, None

    inputs = [normal(B, T, H * d), normal(B, T, groups * d), normal(B, T, groups * d),
              np.sort(integers(3, B, T)) if segments else None, integers(2, B, T) if mask else None]  # fmt: skip
    options = {"n_head": H, "n_kv_head": groups, "scale": scale}
    options.update({"activation": scores[0], "divisor": scores[1], "eps": scores[2]} if scores[1] else {})
    return Case("attention", inputs, options, forward, backward)


def slots_case(
    norm: str,
    gelu: str = "tanh",
    biases: bool = False,
    residual: bool = False,
    groups: int = 1,
    **options: Any,
) -> Case:
    """Token-parameter attention; a row of x is zero."""
    slots = ref.Slots(norm, gelu, **{"scale" if k == "scale_factor" else k: v for k, v in options.items()})

    def tokens(inputs: Any) -> list[Any]:
        return [inputs[1:5], *(inputs[n : n + 4] for n in range(6, 2 + 4 * groups, 4))]

    def forward(*inputs: Any) -> Any:
        y = [ref.pattention(inputs[0], *t, slots) for t in tokens(inputs)]
        return tuple(y) if groups > 1 else y[0] + (0 if inputs[5] is None else inputs[5])

    def backward(dy: Any, *inputs: Any) -> Any:
        dx, out = 0.0, []
        for d, (key, value, kb, vb) in zip(dy if groups > 1 else [dy], tokens(inputs), strict=True):
            own, dkey, dvalue, dkb, dvb = ref.pattention_backward(d, inputs[0], key, value, kb, slots)
            dx = dx + own
            out += [dkey, dvalue, None if kb is None else dkb, None if vb is None else dvb]
        return dx, *out[:4], (dy if residual else None), *out[4:]

    x = normal(2, 9, 17)
    x[1, 4] = 0
    inputs: list[Any] = [x]
    for g in range(groups):
        n = 19 + 7 * g
        inputs += [
            normal(n, 17),
            normal(n, 23) * 0.3,
            normal(n) if biases else None,
            normal(23) if biases else None,
        ]
        if g == 0:
            inputs.append(normal(2, 9, 23) if residual else None)
    options = {"norm": norm, "gelu": f"gelu_{gelu}", **options}
    return Case("pattention", inputs, options, forward, backward)


def slots_cases() -> list[Case]:
    """Every normalisation and gelu, biases, zoom, scale factor, several projections."""
    plain = [slots_case(norm, gelu) for norm in SLOT_NORMS for gelu in ("tanh", "erf")]
    return [
        *plain, slots_case("l2_norm_gelu", biases=True, residual=True, zoom=5.0, scale_factor=1.7),
        slots_case("gelu_l2_norm", "erf", biases=True, eps=0.0), slots_case("l2_norm_gelu", residual=True, eps=0.0),
        slots_case("softmax", biases=True, scale_factor=0.4), slots_case("l2_norm_gelu", groups=3),
        slots_case("gelu_layer_norm", "erf", biases=True, groups=2, scale_factor=0.3),
    ]  # fmt: skip


def biased_loss_case() -> Case:
    """A bias is one more column of the head, for a channel that is always one."""
    h, head, bias = normal(2, 9, 16), normal(37, 16), normal(37)
    targets = integers(37, 2, 9)
    targets[1, 2] = -1

    def wider(h: Any, head: Any, bias: Any) -> Any:
        return np.pad(h.reshape(-1, 16), ((0, 0), (0, 1)), constant_values=1), np.c_[head, bias]

    def forward(h: Any, head: Any, t: Any, b: Any) -> Any:
        loss, count = ref.cross_entropy(*wider(h, head, b), t.reshape(-1))
        return np.array([loss]), np.array([count])

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any) -> Any:
        dh, dhead = ref.cross_entropy_backward(*wider(h, head, b), t.reshape(-1), 1.0)
        return dh[:, :-1].reshape(h.shape), dhead[:, :-1], None, dhead[:, -1]

    return Case("cross_entropy", [h, head, targets, bias], {}, forward, backward)


def loss_case(weighted: bool) -> Case:
    h, head = normal(2, 9, 16), normal(37, 16)
    targets = integers(37, 2, 9)
    targets[0, 3:5] = -100

    def forward(h: Any, head: Any, t: Any) -> Any:
        loss, count = ref.cross_entropy(h.reshape(-1, 16), head, t.reshape(-1))
        return np.array([loss]), np.array([count])

    def backward(dloss: Any, h: Any, head: Any, t: Any) -> Any:
        scale = 1.0 if dloss is None else float(dloss[0])
        dh, dhead = ref.cross_entropy_backward(h.reshape(-1, 16), head, t.reshape(-1), scale)
        return dh.reshape(h.shape), dhead, None

    case = Case("cross_entropy", [h, head, targets], {}, forward, backward)
    return case._replace(options={"dloss": np.array([2.5])}) if weighted else case


def mix_case(static: bool) -> Case:
    """One stream of depth_mix (the others: test_depth_mix.py)."""
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


def route_case(width: int = 19, experts: int = 6, k: int = 2, mask: str = "", **options: Any) -> Case:
    inputs = [normal(2, 13, width), normal(width, experts) * 0.5, None, None]
    if mask:
        inputs[2 if mask == "segments" else 3] = integers(2, 2, 13)
    capacity = {
        name: options[name]
        for name in ("capacity_factor", "capacity_scope", "drop_policy")
        if name in options
    }

    def forward(x: Any, w: Any, s: Any, m: Any) -> Any:
        return moe.route(x, w, k, moe.real(x, s, m), **capacity)[:3]

    def backward(dy: Any, x: Any, w: Any, s: Any, m: Any) -> Any:
        return *moe.route_backward(dy[0], dy[2], x, w, k, moe.real(x, s, m), **capacity), None, None

    return Case("moe_route", inputs, {"top_k": k, **options}, forward, backward)


def experts_case(
    k: int = 2,
    activation: str = "silu",
    full_drop: str = "passthrough",
    residual: bool = False,
    only: int = -1,
) -> Case:
    """Five experts, some tokens with one or none; only: all slots go to this one, the others stay empty."""
    B, T, D, E, F = 2, 13, 19, 5, 11
    chosen = np.argsort(rng.random((B, T, E)), -1)[..., :k].astype(np.int32)
    chosen[0, 3], chosen[1, 2, 0], chosen[1, 7] = -1, -1, -1
    if only >= 0:
        chosen[...] = -1
        chosen[..., 0] = only
    inputs = [normal(B, T, D), np.abs(normal(B, T, k)), chosen, normal(E, D, F) * 0.3, normal(E, D, F) * 0.3,
              normal(E, F, D) * 0.3, normal(B, T, D) if residual else None]  # fmt: skip

    def forward(*given: Any) -> Any:
        return moe.experts(
            *given, activation=lambda z: act(activation, z), passthrough=full_drop == "passthrough"
        )

    def backward(dy: Any, *given: Any) -> Any:
        return moe.experts_backward(
            dy, *given, activation=lambda z: act(activation, z), slope=lambda z: act_slope(activation, z),
            passthrough=full_drop == "passthrough",
        )  # fmt: skip

    return Case("grouped_gemm", inputs, {"activation": activation, "full_drop": full_drop}, forward, backward)


def balance_case(form: str, scope: str = "shard", weighted: bool = False, layers: int = 3) -> Case:
    targets = integers(9, 4, 6)
    targets[1, 2:5] = -1
    figures = [np.abs(normal(4, 4 * 5 + 3)) * 3 + 1 for _ in range(layers)]
    options = {"form": form, "scope": scope, "balance": 0.3, "z": 0.05, "top_k": 2}

    def forward(t: Any, *f: Any) -> Any:
        balance, z, _ = moe.balance(f, 5, 2, form)
        n = (t >= 0).sum()
        return tuple(np.array([n * v]) for v in (0.3 * balance + 0.05 * z, balance, z))

    def backward(dloss: Any, t: Any, *f: Any) -> Any:
        scale = (t >= 0).sum() * (1.0 if dloss is None else float(dloss[0]))
        return None, *moe.balance_backward(f, 5, 2, form, 0.3 * scale, 0.05 * scale)

    case = Case("moe_balance", [targets, *figures], options, forward, backward)
    return case._replace(options={**options, "dloss": np.array([2.5])}) if weighted else case


def moe_cases() -> list[Case]:
    """Routers, experts and auxiliary losses in all their forms."""
    limited = {"capacity_factor": 0.7}
    return [
        route_case(), route_case(mask="segments"), route_case(experts=1, k=1),
        route_case(mask="key_mask", experts=17, k=4),
        route_case(**limited), route_case(**limited, drop_policy="probs", mask="key_mask"),
        route_case(**limited, capacity_scope="shard"),
        route_case(k=3, capacity_factor=0.4, capacity_scope="shard", drop_policy="probs"),
        experts_case(), experts_case(k=1, activation="gelu_tanh", full_drop="zero"), experts_case(k=3, residual=True),
        experts_case(full_drop="zero", residual=True), experts_case(only=3, residual=True),
        balance_case("pooled"), balance_case("per_layer"), balance_case("pooled", "batch", weighted=True),
        balance_case("per_layer", "batch", layers=1),
    ]  # fmt: skip


def cases() -> list[Case]:
    x = normal(3, 4, 33)
    glu = [
        Case("glu", [x, normal(3, 4, 33)], {"activation": a}, lambda g, u, a=a: act(a, g) * u,
             lambda dy, g, u, a=a: (dy * u * act_slope(a, g), dy * act(a, g)))
        for a in ACTIVATIONS
    ]  # fmt: skip
    activations = [
        Case("activation", [x], {"activation": a}, lambda x, a=a: act(a, x),
             lambda dy, x, a=a: (dy * act_slope(a, x),))
        for a in ACTIVATIONS
    ]  # fmt: skip
    table, ids = normal(29, 10), integers(29, 3, 7)
    embeddings = [
        Case("embedding", [ids, table, None], {}, lambda i, t, r: ref.embedding(i, t),
             lambda dy, i, t, r: (None, ref.embedding_backward(dy, i, 29), None)),
        Case("embedding", [None, table, normal(3, 7, 10)], {"positions": True}, lambda i, t, r: t[:7] + r,
             lambda dy, i, t, r: (None, np.pad(dy.sum(0), ((0, 22), (0, 0))), dy)),
    ]  # fmt: skip
    add = Case(
        "add", [x, normal(3, 4, 33)], {}, lambda a, b: a.astype(np.float64) + b, lambda dy, a, b: (dy, dy)
    )
    linears = [linear_case("none", False, False, False), linear_case("gelu_tanh", False, True, False),
               linear_case("none", True, True, True), linear_case("squared_relu", True, False, True)]  # fmt: skip
    return [
        *norm_cases(), *linears, *glu, *activations, *embeddings, add, rope_case(False, False, 1.0),
        rope_case(True, True, 1.0), rope_case(False, True, 0.5), attention_case(4, 0.0, False, False),
        *(attention_case(2, 0.7, True, False, (a, 9, 0.1)) for a in ("sqrelu", "elu", "norm_sqrelu", "norm_elu")),
        *update_cases(), attention_case(2, 0.7, True, False),
        attention_case(1, 0.0, True, True), loss_case(False), loss_case(True),
        biased_loss_case(), *slots_cases(), mix_case(False), mix_case(True), *moe_cases(),
    ]  # fmt: skip
