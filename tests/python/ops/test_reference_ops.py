"""The NumPy oracles against PyTorch autograd in float64, and AdamW against torch.optim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from reference import numpy_attention, numpy_updates
from reference import numpy_ops as ops
from reference import torch_models as tm
from reference import torch_training as tt

rng = np.random.default_rng(7)
TOL = 1e-11


def close(name: str, a: Any, b: Any) -> None:
    b = b.detach().numpy() if isinstance(b, torch.Tensor) else np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=TOL * max(1.0, float(abs(b).max())), err_msg=name)


def autograd(
    f: Callable[..., Any], dy: NDArray[np.float64], *arrays: NDArray[np.float64]
) -> tuple[Any, list[Any]]:
    """Return the output and the input gradients of f in float64."""
    xs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = f(*xs)
    y.backward(torch.tensor(dy))
    return y, [x.grad for x in xs]


@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_norms(eps: float) -> None:
    x, dy, gain, bias = (
        rng.normal(size=(2, 3, 8)),
        rng.normal(size=(2, 3, 8)),
        rng.normal(size=8),
        rng.normal(size=8),
    )
    y, grads = autograd(lambda x, g: F.rms_norm(x, (8,), g, eps), dy, x, gain)
    close("rms", ops.rms_norm(x, gain, eps), y)
    for a, b in zip(ops.rms_norm_backward(dy, x, gain, eps), grads, strict=True):
        close("rms grad", a, b)
    y, grads = autograd(lambda x, g, b: F.layer_norm(x, (8,), g, b, eps), dy, x, gain, bias)
    close("layer_norm", ops.layer_norm(x, gain, bias, eps), y)
    for a, b in zip(ops.layer_norm_backward(dy, x, gain, eps), grads, strict=True):
        close("layer_norm grad", a, b)


@pytest.mark.parametrize("kind", ["tanh", "erf"])
def test_gelu(kind: str) -> None:
    x, dy = rng.normal(size=50) * 4, rng.normal(size=50)
    y, (dx,) = autograd(lambda x: F.gelu(x, approximate={"tanh": "tanh", "erf": "none"}[kind]), dy, x)
    close("gelu", ops.gelu(x, kind), y)
    close("gelu grad", ops.gelu_backward(dy, x, kind), dx)


def test_swiglu() -> None:
    g, u, dy = rng.normal(size=(3, 5)) * 5, rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    y, grads = autograd(lambda g, u: F.silu(g) * u, dy, g, u)
    close("swiglu", ops.swiglu(g, u), y)
    for a, b in zip(ops.swiglu_backward(dy, g, u), grads, strict=True):
        close("swiglu grad", a, b)
    assert np.isfinite(ops.swiglu([-800.0, 800.0], [1.0, 1.0])).all()


def test_rope() -> None:
    x, dy = rng.normal(size=(2, 5, 3, 8)), rng.normal(size=(2, 5, 3, 8))
    pos = rng.integers(0, 1000, (2, 5))
    y, (dx,) = autograd(lambda x: tm.rope(x, torch.from_numpy(pos), 10000.0), dy, x)
    close("rope", ops.rope(x, pos), y)
    close("rope grad", ops.rope_backward(dy, pos), dx)
    partial = ops.rope(x, pos, rotary=4)
    close("rope rest", partial[..., 4:], x[..., 4:])
    close("rope part", partial[..., :4], ops.rope(x[..., :4], pos))


def test_linear_and_embedding() -> None:
    x, w, b, dy = (
        rng.normal(size=(2, 3, 4)),
        rng.normal(size=(4, 5)),
        rng.normal(size=5),
        rng.normal(size=(2, 3, 5)),
    )
    y, grads = autograd(lambda x, w, b: x @ w + b, dy, x, w, b)
    close("linear", ops.linear(x, w, b), y)
    close("residual", ops.linear(x, w, b, dy), y.detach().numpy() + dy)
    for a, b_ in zip(ops.linear_backward(dy, x, w), grads, strict=True):
        close("linear grad", a, b_)
    ids = np.array([[1, 3, 1], [0, 3, 3]])
    table = rng.normal(size=(6, 5))
    y, (dt,) = autograd(lambda t: t[torch.from_numpy(ids)], dy, table)
    close("embedding", ops.embedding(ids, table), y)
    close("embedding grad", ops.embedding_backward(dy, ids, 6), dt)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention(kv_heads: int, masked: bool) -> None:
    B, T, H, d = 2, 7, 4, 6
    q, dy = rng.normal(size=(B, T, H, d)), rng.normal(size=(B, T, H, d))
    k, v = rng.normal(size=(B, T, kv_heads, d)), rng.normal(size=(B, T, kv_heads, d))
    segments = np.array([[1, 1, 1, 2, 2, 0, 0], [1, 2, 2, 2, 2, 3, 3]]) if masked else None
    key_mask = np.array([[1, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 1, 1]]) if masked else None
    batch = tm.make_batch(np.zeros((B, T)), segments=segments, key_mask=key_mask)
    y, grads = autograd(lambda q, k, v: tm.causal_attention(q, k, v, batch).view(B, T, H, d), dy, q, k, v)
    close("attention", numpy_attention.attention(q, k, v, segments=segments, key_mask=key_mask), y)
    for a, b in zip(
        numpy_attention.attention_backward(dy, q, k, v, segments=segments, key_mask=key_mask),
        grads,
        strict=True,
    ):
        close("attention grad", a, b)
    if masked:  # row 0 of batch 1 sees no key: its only key is masked
        got = numpy_attention.attention(q, k, v, segments=segments, key_mask=key_mask)
        sums = numpy_attention.attention_log_sums(q, k, None, segments, key_mask)
        assert (got[1, 0] == 0).all() and np.isneginf(sums[1, :, 0]).all()
    close(
        "last rows", numpy_attention.attention(q[:, 5:], k, v, segments=segments, key_mask=key_mask), y[:, 5:]
    )


def test_attention_without_masks_is_sdpa() -> None:
    q, k, v = (rng.normal(size=(2, 9, 3, 4)) for _ in range(3))
    t = [torch.tensor(x).transpose(1, 2) for x in (q, k, v)]
    close(
        "sdpa",
        numpy_attention.attention(q, k, v),
        F.scaled_dot_product_attention(t[0], t[1], t[2], is_causal=True).transpose(1, 2),
    )


def test_cross_entropy() -> None:
    h, w, t = rng.normal(size=(6, 4)), rng.normal(size=(9, 4)) * 3, np.array([3, -1, 8, 0, -100, 3])
    th, tw = torch.tensor(h, requires_grad=True), torch.tensor(w, requires_grad=True)
    loss = tt.mean_loss(th @ tw.T, torch.from_numpy(t))
    loss.backward()  # type: ignore[no-untyped-call]
    sums = ops.cross_entropy(h, w, t)
    assert sums.targets == 4
    close("loss", sums.loss / sums.targets, loss)
    dh, dw = ops.cross_entropy_backward(h, w, t, 1.0 / sums.targets)
    close("dh", dh, th.grad)
    close("dw", dw, tw.grad)
    assert (dh[[1, 4]] == 0).all()


def test_adamw_and_clip() -> None:
    w0, grads = rng.normal(size=(3, 4)), [rng.normal(size=(3, 4)) * 3 for _ in range(4)]
    p = torch.nn.Parameter(torch.tensor(w0))
    optimizer = torch.optim.AdamW([p], lr=3e-2, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3)
    w, m, v = w0, np.zeros_like(w0), np.zeros_like(w0)
    for step, g in enumerate(grads, 1):
        p.grad = torch.tensor(g)
        norm = float(torch.nn.utils.clip_grad_norm_([p], 1.0))
        optimizer.step()
        close("norm", numpy_updates.global_norm({"w": g}), norm)
        scale = numpy_updates.clip_scale(norm, 1.0)
        w, m, v = numpy_updates.adamw(w, m, v, g, step, 3e-2, 0.8, 0.9, 1e-6, 0.3, scale)
        # torch's clip adds 1e-6 to the norm, hence the wider tolerance.
        np.testing.assert_allclose(w, p.detach().numpy(), rtol=0, atol=2e-7)
