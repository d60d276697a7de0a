"""depth_mix with several streams and every option, against PyTorch in float64, and the errors of wrong calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from mudd_core import ops
from mudd_core.graph import scopes
from op_case import normal
from reference.torch_muddformer import depth_mix

# streams, states, D, K (0: static), generator gain, gains, newest, options
VARIANTS: list[tuple[int, int, int, int, bool, int, bool, dict[str, Any]]] = [
    (4, 3, 33, 5, False, 3, False, {}),
    (4, 5, 64, 64, True, 4, True, {"direct": True, "post_norm": True}),
    (4, 2, 24, 11, False, 4, False, {"direct": True, "post_norm": True, "activation": "gelu_erf"}),
    (1, 2, 16, 8, True, 1, False, {"direct": True, "post_norm": True, "eps": 1e-3}),
    (4, 2, 24, 0, False, 2, True, {"direct": True}),
    (3, 4, 17, 9, True, 3, True, {"norm_eps": 1e-2}),
    (2, 1, 7, 0, False, 0, False, {}),
    (4, 1, 8, 3, False, 0, False, {}),
]


def arrays(variant: Any, rows: tuple[int, ...] = (3, 29)) -> list[Any]:
    streams, count, width, hidden, gain, gains, newest, _ = variant
    inputs: list[Any] = [normal(streams, count)]
    inputs += [normal(width, hidden) * 0.2, normal(hidden, streams * count) * 0.3] if hidden else [None, None]
    inputs.append(normal(width) + 1 if gain else None)
    inputs += [normal(width) + 1 if c < gains else None for c in range(4)]
    inputs.append(normal(*rows, width) if newest else None)
    return inputs + [normal(*rows, width) for _ in range(count)]


def streams_of(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


@pytest.mark.parametrize("variant", VARIANTS)
def test_streams_and_gradients_equal_autograd(variant: Any) -> None:
    inputs, options = arrays(variant), variant[-1]
    leaves = [None if i is None else torch.tensor(i, dtype=torch.float64, requires_grad=True) for i in inputs]
    want = depth_mix(leaves, **options)
    got = streams_of(ops.depth_mix(*inputs, **options))
    dy = [normal(*g.shape) for g in got]
    for y, exact in zip(got, want, strict=True):
        # A norm of a sum that nearly cancels, against float64.
        np.testing.assert_allclose(y, exact.detach().numpy(), rtol=0, atol=3e-5)
    torch.autograd.backward(want, [torch.tensor(d, dtype=torch.float64) for d in dy])
    gradients = ops.depth_mix_backward(tuple(dy), *inputs, **options)
    for index, (gradient, leaf) in enumerate(zip(gradients, leaves, strict=True)):
        assert (gradient is None) == (leaf is None), index
        if leaf is None:
            continue
        # The newest state has no gradient from an op without a generator and sums.
        exact = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        scale = max(1.0, float(np.abs(exact).max()))
        # A norm of a sum that nearly cancels, against float64.
        np.testing.assert_allclose(gradient, exact, rtol=0, atol=3e-5 * scale, err_msg=str(index))


def test_a_stream_that_nobody_reads_has_gradient_zero() -> None:
    inputs = arrays(VARIANTS[0])
    dy = [normal(3, 29, 33) for _ in range(4)]
    absent = ops.depth_mix_backward((None, dy[1], None, dy[3]), *inputs)
    zero = ops.depth_mix_backward((dy[0] * 0, dy[1], dy[2] * 0, dy[3]), *inputs)
    for a, b in zip(absent, zero, strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)
    leaves = [None if i is None else torch.tensor(i, dtype=torch.float64, requires_grad=True) for i in inputs]
    _, second, _, fourth = depth_mix(leaves)
    torch.autograd.backward((second, fourth), [torch.tensor(d, dtype=torch.float64) for d in (dy[1], dy[3])])
    for index, (gradient, leaf) in enumerate(zip(absent, leaves, strict=True)):
        if leaf is not None:
            exact = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
            scale = max(1.0, float(np.abs(exact).max()))
            # A norm of a sum that nearly cancels, against float64.
            np.testing.assert_allclose(gradient, exact, rtol=0, atol=3e-5 * scale, err_msg=str(index))


def test_rows_never_depend_on_their_number_or_on_threads() -> None:
    inputs = arrays(VARIANTS[0], (200,))
    dy = tuple(normal(200, 33) for _ in range(4))
    whole, grads = ops.depth_mix(*inputs), ops.depth_mix_backward(dy, *inputs)
    for begin, end in ((0, 1), (7, 60), (199, 200)):
        part = [i if n < 9 else i[begin:end] for n, i in enumerate(inputs)]
        for y, full in zip(ops.depth_mix(*part), whole, strict=True):
            assert np.array_equal(y, full[begin:end])
        some = ops.depth_mix_backward(tuple(d[begin:end] for d in dy), *part)
        assert all(np.array_equal(a, b[begin:end]) for a, b in zip(some[9:], grads[9:], strict=True))
    try:
        for threads in (1, 3):
            mc.set_num_threads(threads)
            again = ops.depth_mix_backward(dy, *inputs)
            assert all(a is None or np.array_equal(a, b) for a, b in zip(again, grads, strict=True))
    finally:
        mc.set_num_threads(0)


def test_sums_over_tokens_follow_the_shards() -> None:
    inputs = arrays(VARIANTS[1], (8, 20))
    dy = tuple(normal(8, 20, 64) for _ in range(4))
    plain = ops.depth_mix_backward(dy, *inputs, direct=True, post_norm=True)
    with scopes.shards(8, 4):
        cut = ops.depth_mix_backward(dy, *inputs, direct=True, post_norm=True)
    each = [
        ops.depth_mix_backward(
            tuple(d[i : i + 2] for d in dy),
            *inputs[:8],
            *(x[i : i + 2] for x in inputs[8:]),
            direct=True,
            post_norm=True,
        )
        for i in range(0, 8, 2)
    ]
    for index, (a, b) in enumerate(zip(plain, cut, strict=True)):
        parts = [gradients[index] for gradients in each]
        tree = np.concatenate(parts) if index >= 8 else (parts[0] + parts[1]) + (parts[2] + parts[3])
        assert np.array_equal(b, tree), index
        assert index < 8 or np.array_equal(a, b), index
    assert not np.array_equal(plain[1], cut[1])  # to show that the comparison with the tree can fail


X = np.ones((2, 3, 8), np.float32)
ONE = np.ones((1, 2), np.float32)
GAIN = np.ones(8, np.float32)
W1, W2 = np.ones((8, 4), np.float32), np.ones((4, 2), np.float32)


def call(
    bias: Any = ONE,
    w1: Any = None,
    w2: Any = None,
    gen: Any = None,
    gains: Any = (),
    newest: Any = None,
    states: Any = (X, X),
    **options: Any,
) -> Any:
    return ops.depth_mix(bias, w1, w2, gen, *gains, *[None] * (4 - len(gains)), newest, *states, **options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"states": ()}, ["states", "at least one"]),
        ({"states": (X, X[:1])}, ["state 1", "float32[2, 3, 8]"]),
        ({"bias": np.ones((5, 2), np.float32)}, ["bias", "1 to 4"]),
        ({"bias": np.ones((2, 3), np.float32)}, ["bias", "float32[C, 2]"]),
        ({"w1": W1}, ["w1 and w2", "both or none"]),
        ({"w1": W1[:7], "w2": W2}, ["w1", "float32[8, K]"]),
        ({"w1": W1, "w2": W2[:, :1]}, ["w2", "float32[4, 2]"]),
        ({"gen": GAIN}, ["generator_gain", "needs w1"]),
        ({"w1": W1, "w2": W2, "gen": GAIN[:3]}, ["generator_gain", "float32[8]"]),
        ({"gains": (None, GAIN)}, ["gain 1", "without a gap"]),
        ({"gains": (GAIN, GAIN)}, ["gain 1", "of 1"]),
        ({"gains": (GAIN[:4],)}, ["gain 0", "float32[8]"]),
        ({"newest": X[:1]}, ["newest", "float32[2, 3, 8]"]),
        ({"post_norm": True}, ["post_norm", "needs direct"]),
        ({"post_norm": True, "direct": True}, ["post_norm", "a gain for every stream"]),
        ({"eps": -1.0}, ["eps", ">= 0"]),
        ({"activation": "gelu"}, ["activation", "'gelu'"]),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        call(**arguments)
    assert all(word in str(error.value) for word in ["[depth_mix]", *words]), str(error.value)


def test_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match=r"\[depth_mix\] states: expected float32, got float64"):
        call(states=(X, X.astype(np.float64)))
    with pytest.raises(TypeError, match=r"\[depth_mix\] bias"):
        call(bias=None)
