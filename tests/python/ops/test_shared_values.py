"""A result that is passed to one op several times gets the sum of the gradients of its uses, in both executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core, ops
from mudd_core.graph.recording import Recorder
from mudd_core.graph.scopes import precision
from mudd_core.graph.tape import Tensor

RNG = np.random.default_rng(3)
B, T, D = 2, 5, 8
X = RNG.standard_normal((B, T, D), dtype=np.float32)
GAIN = RNG.uniform(0.5, 2, D).astype(np.float32)
SLOPE = RNG.standard_normal((B, T, D), dtype=np.float32)  # gradient of the loss by the result
WEIGHTS = {
    "w": RNG.standard_normal((D, D), dtype=np.float32) * 0.3,
    "keys": RNG.standard_normal((6, D), dtype=np.float32),
    "values": RNG.standard_normal((6, D), dtype=np.float32),
    "w1": RNG.standard_normal((D, 6), dtype=np.float32) * 0.5,
    "w2": RNG.standard_normal((6, 6), dtype=np.float32) * 0.5,
    "bias": RNG.standard_normal((2, 3), dtype=np.float32) * 0.5,
}
Weight = Callable[[str], Any]


def mixed(v: Any, w: Weight, *, direct: bool = False, generator: bool = True, newest: bool = True) -> Any:
    w1, w2 = (w("w1"), w("w2")) if generator else (None, None)
    first, states = (v[0], v[1:]) if newest else (None, v)
    a, b = ops.depth_mix(w("bias"), w1, w2, None, None, None, None, None, first, *states, direct=direct)
    return ops.add(a, b)


# Number of uses of the value, and the function that uses it.
CASES: dict[str, tuple[int, Callable[[Any, Weight], Any]]] = {
    "add": (2, lambda v, w: ops.add(v[0], v[1])),
    "dropout and residual": (2, lambda v, w: ops.dropout(v[0], v[1], rate=0.4)),
    "glu": (2, lambda v, w: ops.glu(v[0], v[1])),
    "attention": (3, lambda v, w: ops.attention(v[0], v[1], v[2], n_head=2)),
    "linear and residual": (2, lambda v, w: ops.linear(v[0], w("w"), None, v[1])),
    "lora and residual": (2, lambda v, w: ops.lora(v[0], w("w"), w("w1"), w("keys"), None, v[1])),
    "pattention and residual": (2, lambda v, w: ops.pattention(v[0], w("keys"), w("values"), residual=v[1])),
    "states": (3, lambda v, w: mixed(v, w, newest=False)),
    "states and newest": (4, lambda v, w: mixed(v, w)),
    "states and newest, direct": (4, lambda v, w: mixed(v, w, direct=True)),
    "states and newest, no generator": (4, lambda v, w: mixed(v, w, generator=False)),
    "states and newest, direct, no generator": (4, lambda v, w: mixed(v, w, direct=True, generator=False)),
    "custom": (2, lambda v, w: ops.custom(lambda a, b: a * b, lambda d, a, b: (d * b, d * a), v[0], v[1])),
}


def loss_of(y: Any) -> Any:
    return ops.custom(
        lambda a: np.asarray([(a * SLOPE).sum()]), lambda d, a: (d * SLOPE).astype(np.float32), y
    )


def immediate(function: Callable[[Any, Weight], Any], uses: int, shared: bool, kind: str) -> Any:
    with precision(kind):
        gain = Tensor(GAIN, requires_grad=True)
        values = [ops.rms_norm(Tensor(X), gain) for _ in range(1 if shared else uses)]
        loss_of(function(values * uses if shared else values, WEIGHTS.__getitem__)).backward()
    return gain.grad


def planned(function: Callable[[Any, Weight], Any], uses: int, shared: bool, kind: str) -> Any:
    store = _core.ParamStore(compute={"fp32": "float32", "bf16": "bfloat16"}[kind])
    recorder = Recorder(store, training=True, samples=B, shards=1)

    def parameter(name: str) -> Any:
        array = {"gain": GAIN, **WEIGHTS}[name]
        role = {"gain": "gain", "bias": "bias"}.get(name, "matrix")
        return recorder.parameter(
            name, array.shape, role=role, fan_in=array.shape[0], fan_out=array.shape[-1], init="ones"
        )

    x, gain = recorder.input("x", X.shape, "float32"), parameter("gain")
    values = [ops.rms_norm(x, gain) for _ in range(1 if shared else uses)]
    total = loss_of(function(values * uses if shared else values, parameter))
    loss = ops.custom(lambda a: a, lambda d, a: np.ones_like(a), total)
    store.allocate()
    for name in store.names():
        store.set(0, name, {"gain": GAIN, **WEIGHTS}[name])
    executor = _core.Executor(recorder.graph, store, losses=[loss.number], keep=[], poison=True)
    executor.set("x", X)
    executor.run()
    return executor.gradient("gain")


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
@pytest.mark.parametrize("run", [immediate, planned])
@pytest.mark.parametrize("case", CASES)
def test_each_use_of_a_result_counts(case: str, run: Any, kind: str) -> None:
    uses, function = CASES[case]
    once, apart = (run(function, uses, shared, kind) for shared in (True, False))
    tolerance = {"fp32": 2e-6, "bf16": 3e-2}[kind]  # another order of sums; in bf16 each gradient is rounded
    np.testing.assert_allclose(once, apart, rtol=0, atol=tolerance * float(np.abs(apart).max()))


def check_shared(gradient: Callable[[bool], Any], times: int) -> None:
    """Check that gradient(True) has equal bits with one and four threads, and nearly equals gradient(False)."""
    apart = gradient(False)
    try:
        mc.set_num_threads(1)
        alone = gradient(True)
        mc.set_num_threads(4)
        together = [gradient(True) for _ in range(times)]
    finally:
        mc.set_num_threads(0)
    assert all(np.array_equal(alone, again) for again in together)
    # float32 on both sides, with the sums in another order.
    np.testing.assert_allclose(alone, apart, rtol=0, atol=1e-5 * float(np.abs(apart).max()))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("twice", ["key", "value", "both"])
def test_long_attention_of_one_value_has_the_same_bits_at_any_thread_count(twice: str, causal: bool) -> None:
    x, other = (RNG.standard_normal((1, 900, D), dtype=np.float32) for _ in range(2))
    slope = RNG.standard_normal(x.shape, dtype=np.float32)

    def gradient(shared: bool) -> Any:
        gain = Tensor(GAIN, requires_grad=True)
        q, k, v = (ops.rms_norm(Tensor(x), gain) for _ in range(3))
        k = q if shared and twice != "value" else ops.rms_norm(Tensor(other), gain) if twice == "value" else k
        v = q if shared and twice != "key" else ops.rms_norm(Tensor(other), gain) if twice == "key" else v
        y = ops.attention(q, k, v, n_head=1, causal=causal)
        ops.custom(
            lambda a: np.asarray([(a * slope).sum()]), lambda d, a: (d * slope).astype(np.float32), y
        ).backward()
        return gain.grad

    check_shared(gradient, times=4)


def test_experts_with_one_computed_matrix_for_gate_and_up() -> None:
    x, down = (
        RNG.standard_normal((3, 6, T), dtype=np.float32),
        RNG.standard_normal((B, D, T), dtype=np.float32),
    )
    gates, choices = np.ones((3, 6, 1), np.float32), RNG.integers(0, B, (3, 6, 1)).astype(np.int32)

    def gradient(shared: bool) -> Any:
        gain = Tensor(GAIN, requires_grad=True)
        values = [ops.rms_norm(Tensor(X), gain) for _ in range(1 if shared else 2)]
        y = ops.grouped_gemm(x, gates, choices, values[0], values[-1], down)
        ops.custom(lambda a: np.asarray([(a * a).sum()]), lambda d, a: 2 * d * a, y).backward()
        return gain.grad

    apart = gradient(False)
    # float32 on both sides, with the sums in another order.
    np.testing.assert_allclose(gradient(True), apart, rtol=0, atol=1e-5 * float(np.abs(apart).max()))


def test_tokens_of_one_computed_matrix_have_the_same_bits_at_any_thread_count() -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((2, 96, 64), dtype=np.float32)
    tokens = rng.standard_normal((160, 64), dtype=np.float32)

    def gradient(shared: bool) -> Any:
        gain = Tensor(np.ones(64, np.float32), requires_grad=True)
        values = [ops.rms_norm(Tensor(tokens), gain) for _ in range(1 if shared else 2)]
        y = ops.pattention(x, values[0], values[-1])
        ops.custom(lambda a: np.asarray([(a * a).sum()]), lambda d, a: 2 * d * a, y).backward()
        return gain.grad

    check_shared(gradient, times=8)


def test_a_second_backward_through_experts_adds_the_same_gradients() -> None:
    rng = np.random.default_rng(6)
    shapes = {"x": (B, 6, T), "gate": (2, T, D), "up": (2, T, D), "down": (2, D, T)}
    leaves = {
        k: Tensor(rng.standard_normal(s, dtype=np.float32), requires_grad=True) for k, s in shapes.items()
    }
    choices = rng.integers(0, 2, (B, 6, 1)).astype(np.int32)
    y = ops.grouped_gemm(
        leaves["x"],
        np.full((B, 6, 1), 0.5, np.float32),
        choices,
        leaves["gate"],
        leaves["up"],
        leaves["down"],
    )
    loss = ops.custom(lambda a: np.asarray([(a * a).sum()]), lambda d, a: 2 * d * a, y)
    loss.backward()
    once = {k: leaf.grad.copy() for k, leaf in leaves.items()}
    loss.backward()
    for name, leaf in leaves.items():
        assert np.array_equal(leaf.grad, once[name] + once[name]), name
