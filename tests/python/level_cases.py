"""Random calls of every op, with inputs and options drawn around the edges of vectors, tiles and masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from level_draw import F32, I32, Draw
from mudd_core import _core

Array = NDArray[np.generic]
Options = dict[str, bool | int | float | str]
Call = tuple[list[Array | None], Options]

_SPECS = {spec.name: spec for spec in _core.op_specs()}


def choices(op: str, option: str) -> Sequence[str]:
    """Return the values that an option of an op accepts."""
    return next(one.choices for one in _SPECS[op].options if one.name == option)


def tokens(draw: Draw, width: int) -> F32:
    """Return [B, T, width]; small widths are combined with many rows."""
    return draw.array(draw.pick((1, 2, 3, 4)), draw.size(33 if width > 33 else 130), width)


def activation(draw: Draw) -> Call:
    return [tokens(draw, draw.size())], {"activation": draw.pick(choices("activation", "activation"))}


def add(draw: Draw) -> Call:
    x = tokens(draw, draw.size())
    return [x, draw.array(*x.shape)], {}


def attention(draw: Draw) -> Call:
    groups, repeats = draw.pick((1, 2, 3)), draw.pick((1, 2, 4))
    width = draw.pick((8, 1, 4, 7, 16, 17, 24, 32, 33, 64, 80, 128))
    samples, length = draw.pick((1, 2)), draw.size()
    options: Options = {"n_head": groups * repeats, "n_kv_head": groups, "scale": draw.pick((0.0, 0.7))}
    options["causal"] = not draw.flag()
    options["activation"] = scores = draw.pick(choices("attention", "activation"))
    if scores != "softmax":
        options["divisor"] = length
    elif draw.flag():
        options |= {"dropout": 0.3, "purpose": "here"}
    if options["causal"] and draw.flag():
        options["window"] = draw.pick((1, 7, 64, 100))
    masks = attention_masks(draw, samples, length)
    q = draw.array(samples, length, groups * repeats * width)
    k, v = (draw.array(samples, length, groups * width) for _ in range(2))
    return [q, k, v, *masks], options


def attention_masks(draw: Draw, samples: int, length: int) -> list[Array | None]:
    """Return segments and key mask, each an array or None; a mask may hide all keys of a row."""
    segments = np.sort(draw.integers(4, samples, length)) if draw.flag() else None
    return [segments, draw.integers(2, samples, length) if draw.flag() else None]


def cross_entropy(draw: Draw) -> Call:
    width, vocabulary = draw.size(), draw.pick((2, 7, 16, 17, 33, 61, 130, 517, 1100))
    h = tokens(draw, width)
    targets = draw.integers(vocabulary, *h.shape[:-1], low=-2 if draw.flag() else 0)
    bias = draw.maybe(vocabulary)
    chunk = draw.pick((1 << 24, 4096))
    return [h, draw.array(vocabulary, width, scale=0.3), targets, bias], {"chunk_bytes": chunk}


def regularized_loss(draw: Draw) -> Call:
    inputs, options = cross_entropy(draw)
    terms = {"label_smoothing": draw.pick((0.0, 0.1, 1.0)), "z": draw.pick((0.0, 1e-4, 0.1))}
    return inputs, {**options, **terms}


def teacher_loss(draw: Draw) -> Call:
    inputs, options = cross_entropy(draw)
    h, head, targets, bias = inputs
    assert targets is not None and head is not None
    kept = 1 + draw.below(min(9, len(head) - 1))
    rows = [np.sort(np.argsort(draw.array(len(head)), kind="stable")[:kept]) for _ in range(targets.size)]
    ids = np.array(rows, np.int32).reshape(*targets.shape, kept)
    log_probs = draw.array(*ids.shape) - np.float32(np.log(2 * len(head)))
    return [h, head, targets, ids, log_probs, bias], {**options, "weight": draw.pick((0.5, 1.0))}


def preference_loss(draw: Draw) -> Call:
    width, vocabulary, pairs = draw.size(33), draw.pick((2, 7, 17, 33, 130, 517)), draw.pick((4, 8))
    h = draw.array(2 * pairs, draw.size(33), width)
    targets = draw.integers(vocabulary, *h.shape[:-1], low=-2 if draw.flag() else 0)
    kind = draw.pick(choices("preference_loss", "loss"))
    reference = draw.array(2 * pairs, 2) if kind == "dpo" else None
    inputs = [h, draw.array(vocabulary, width, scale=0.3), targets, draw.maybe(vocabulary), reference, None]
    return inputs, {"loss": kind, "beta": 0.3, "chunk_bytes": draw.pick((1 << 24, 4096))}


def depth_mix(draw: Draw) -> Call:
    streams, sources, width = draw.pick((1, 2, 3, 4)), draw.pick((1, 2, 3, 9, 17)), draw.size()
    first = tokens(draw, width)
    inputs: list[Array | None] = [draw.array(streams, sources), None, None, None]
    options: Options = {}
    if draw.flag():
        hidden = draw.size(97)
        inputs[1] = draw.array(width, hidden, scale=0.2)
        inputs[2] = draw.array(hidden, streams * sources, scale=0.3)
        inputs[3] = draw.maybe(width)
        options["activation"] = draw.pick(choices("depth_mix", "activation"))
    gains = draw.below(streams + 1)
    inputs += [draw.array(width) if c < gains else None for c in range(4)]
    if gains == streams and draw.flag():
        options["post_norm"] = options["direct"] = True
    newest = draw.maybe(*first.shape)
    return [*inputs, newest, first, *(draw.array(*first.shape) for _ in range(sources - 1))], options


def dropout(draw: Draw) -> Call:
    x = tokens(draw, draw.size())
    return [x, draw.maybe(*x.shape)], {"rate": draw.pick((0.3, 0.0, 0.9)), "purpose": "here"}


def embedding(draw: Draw) -> Call:
    width, rows, length = draw.size(), draw.pick((64, 1, 7, 33, 130)), draw.size(64)
    samples, residual = draw.pick((1, 2, 3)), draw.flag()
    shape = (samples, length, width)
    options: Options = {"scale": draw.pick((1.0, 5.7))}
    if draw.flag() and length <= rows:
        return [None, draw.array(rows, width), draw.array(*shape)], {**options, "positions": True}
    ids = draw.integers(rows, samples, length)
    return [ids, draw.array(rows, width), draw.array(*shape) if residual else None], options


def glu(draw: Draw) -> Call:
    gate = tokens(draw, draw.size())
    return [gate, draw.array(*gate.shape)], {"activation": draw.pick(choices("glu", "activation"))}


def grouped_gemm(draw: Draw) -> Call:
    """Draw experts without a token, and tokens without an expert."""
    samples, length, width, hidden = draw.pick((1, 2)), draw.size(65), draw.size(65), draw.size(65)
    experts = draw.pick((4, 1, 5, 17))
    k = min(experts, draw.pick((1, 2, 3)))
    chosen = np.argsort(draw.rng.random((samples, length, experts)), -1)[..., :k].astype(np.int32)
    if draw.flag():
        chosen[draw.rng.random(chosen.shape) < 0.3] = -1
    if draw.flag():
        chosen[chosen % 2 == 0] = -1
    inputs: list[Array | None] = [
        draw.array(samples, length, width),
        np.abs(draw.array(samples, length, k)),
        chosen,
        draw.array(experts, width, hidden, scale=0.3),
        draw.array(experts, width, hidden, scale=0.3),
        draw.array(experts, hidden, width, scale=0.3),
        draw.maybe(samples, length, width),
    ]
    names = ("activation", "full_drop")
    options: Options = {name: draw.pick(choices("grouped_gemm", name)) for name in names}
    rank = draw.size(20)
    for shapes in (
        ((experts, width, rank), (experts, 2 * rank, hidden)),
        ((experts, hidden, rank), (experts, rank, width)),
    ):
        has = draw.flag()
        inputs += [draw.array(*shape, scale=0.3) if has else None for shape in shapes]
    return inputs, {**options, "scale": draw.pick((1.0, 0.5, 2.0))}


def layer_norm(draw: Draw) -> Call:
    width = draw.size()
    options: Options = {"eps": draw.pick((1e-5, 0.0, 1e-2)), "gain_offset": draw.pick((0.0, 1.0))}
    options["scale"] = draw.pick((1.0, 0.25))
    gain = draw.maybe(width)
    bias = draw.array(width) if gain is not None and draw.flag() else None
    return [tokens(draw, width), gain, bias], options


def linear(draw: Draw) -> Call:
    depth, width = draw.pick((1, 7, 8, 15, 16, 17, 31, 33, 64, 97, 130, 300, 517)), draw.size()
    x = tokens(draw, depth)
    options: Options = {"activation": draw.pick(choices("linear", "activation"))}
    options["transposed"] = transposed = draw.flag()
    w = draw.array(*((width, depth) if transposed else (depth, width)), scale=0.3)
    return [x, w, draw.maybe(width), draw.maybe(*x.shape[:-1], width)], options


def lora(draw: Draw) -> Call:
    depth, width, rank = (
        draw.pick((1, 7, 8, 16, 17, 33, 64, 130, 517)),
        draw.size(),
        draw.pick((4, 1, 8, 16, 17, 64)),
    )
    x = tokens(draw, depth)
    options: Options = {"scale": draw.pick((2.0, 0.3)), "rate": draw.pick((0.0, 0.25))}
    matrices = [draw.array(*shape, scale=0.3) for shape in ((depth, width), (depth, rank), (rank, width))]
    return [x, *matrices, draw.maybe(width), draw.maybe(*x.shape[:-1], width)], options


def moe_balance(draw: Draw) -> Call:
    experts, layers, samples, length = draw.pick((5, 1, 8, 17)), draw.pick((1, 2, 3)), 4, draw.size(33)
    targets = draw.integers(9, samples, length, low=-2)
    metrics = [np.abs(draw.array(samples, 4 * experts + 3)) + 1 for _ in range(layers)]
    options: Options = {name: draw.pick(choices("moe_balance", name)) for name in ("form", "scope")}
    return [targets, *metrics], {**options, "balance": 0.3, "z": 0.05, "top_k": min(2, experts)}


def moe_route(draw: Draw) -> Call:
    width, experts = draw.size(), draw.pick((4, 1, 5, 8, 17, 33))
    x = tokens(draw, width)
    options: Options = {"top_k": min(experts, draw.pick((1, 2, 4)))}
    options["capacity_factor"] = draw.pick((0.0, 0.7))
    options |= {n: draw.pick(choices("moe_route", n)) for n in ("capacity_scope", "drop_policy")}
    options["jitter"] = draw.pick((0.0, 0.1))
    masks = [draw.integers(2, *x.shape[:-1]) if draw.flag() else None for _ in range(2)]
    return [x, draw.array(width, experts, scale=0.5), *masks], options


def ngram_rows(draw: Draw) -> Call:
    samples, length, width, rows = draw.pick((1, 2, 4)), draw.size(), draw.size(), draw.pick((64, 1, 7, 1000))
    segments = np.sort(draw.integers(4, samples, length)) if draw.flag() else None
    options: Options = {"orders": draw.pick(("2,3", "1", "2", "3,1", "1,2,3"))}
    options |= {"seed": draw.below(5), "end": draw.pick((-1, 3))}
    return [draw.integers(draw.pick((9, 50000)), samples, length), draw.array(rows, width), segments], options


def pattention(draw: Draw) -> Call:
    width, out, groups = draw.size(97), draw.size(97), draw.pick((1, 1, 2, 3))
    x = tokens(draw, width)
    inputs: list[Array | None] = [x]
    for group in range(groups):
        slots = draw.size()
        inputs += [draw.array(slots, width), draw.array(slots, out, scale=0.3)]
        inputs += [draw.maybe(slots), draw.maybe(out)]
        if group == 0:
            inputs.append(draw.array(*x.shape[:-1], out) if groups == 1 and draw.flag() else None)
    options: Options = {name: draw.pick(choices("pattention", name)) for name in ("norm", "gelu")}
    options |= {"eps": draw.pick((1e-5, 0.0)), "scale_factor": draw.pick((1.0, 0.4))}
    options["keep_scores"] = not draw.flag()
    return inputs, options


def rms_norm(draw: Draw) -> Call:
    heads, width = draw.pick((1, 1, 3, 4)), draw.size(97)
    gain = draw.pick((0, width, 1))
    x = tokens(draw, heads * width)
    options: Options = {"eps": draw.pick((1e-6, 0.0, 1e-2)), "heads": heads}
    options["gain_offset"] = draw.pick((0.0, 1.0))
    return [x, draw.array(gain) if gain else None], options


def rope(draw: Draw) -> Call:
    heads, width = draw.pick((1, 2, 3)), draw.pick((8, 2, 16, 32, 34, 64, 80, 128))
    samples, length = draw.pick((1, 2)), draw.size()
    positions: I32 | None = draw.integers(200, samples, length) if draw.flag() else None
    options: Options = {
        "n_head": heads,
        "base": draw.pick((1e4, 500.0)),
        "fraction": draw.pick((1.0, 0.5) if width % 4 == 0 else (1.0,)),
    }
    options["max_positions"] = 200 if positions is not None else 0
    if (scaling := draw.pick(choices("rope", "scaling"))) != "none":
        options |= {"scaling": scaling, "factor": 8.0, "original": 64}
    return [draw.array(samples, length, heads * width), positions], options


def _update(draw: Draw, moments: int) -> list[Array | None]:
    shape = draw.pick((1, 2, 3)), draw.size()
    return [draw.array(*shape) for _ in range(2 + moments)]


def adamw(draw: Draw) -> Call:
    w, gradient, first, second = _update(draw, 2)
    assert second is not None
    options: Options = {"lr": 0.01, "eps": draw.pick((1e-8, 1e-3)), "decay": draw.pick((0.0, 0.02))}
    return [w, gradient, first, np.abs(second)], {**options, "step": draw.pick((1, 2, 1000))}


def lion(draw: Draw) -> Call:
    return _update(draw, 1), {"lr": 0.01, "decay": draw.pick((0.0, 0.02))}


def sgd(draw: Draw) -> Call:
    return _update(draw, 1), {"lr": 0.01, "momentum": draw.pick((0.9, 0.0)), "decay": draw.pick((0.0, 0.02))}


OPS: dict[str, Callable[[Draw], Call]] = {
    made.__name__: made
    for made in (
        *(activation, adamw, add, attention, cross_entropy, depth_mix, dropout, embedding, glu, grouped_gemm),
        *(layer_norm, linear, lion, lora, moe_balance, moe_route, pattention, rms_norm, rope, sgd),
        *(ngram_rows, preference_loss, regularized_loss, teacher_loss),
    )
}
