"""NumPy's operators on the tape: values against NumPy, gradients against PyTorch in float64, in both executors."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mudd_core as mc
from mudd_core import _core, ops
from mudd_core.graph.recording import Recorder
from near import REORDERED

Function = Callable[..., Any]
CLOSE = {"rtol": 2e-5, "atol": 2e-5}
BINARY = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
}
# Values are away from 0, so that quotients and powers stay moderate.
NUMBERS = st.floats(0.5, 2.0, width=32)


def arrays(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.float32, shape, elements=NUMBERS)


def check(function: Function, *inputs: Any, torch_function: Function | None = None) -> None:
    """Compare value and gradients with PyTorch in float64; the gradient of the result is not all ones."""
    leaves = [mc.Tensor(a.copy(), requires_grad=True) for a in inputs]
    exact = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in inputs]
    y, want = function(*leaves), (torch_function or function)(*exact)
    assert y.shape == tuple(want.shape) and y.dtype == np.float32
    np.testing.assert_allclose(y, want.detach().numpy(), **CLOSE)
    dy = np.linspace(-1, 2, y.size, dtype=np.float32).reshape(y.shape)
    y.backward(dy)
    want.backward(torch.tensor(dy, dtype=torch.float64))
    for leaf, one in zip(leaves, exact, strict=True):
        assert leaf.grad is not None and one.grad is not None and leaf.grad.dtype == np.float32
        np.testing.assert_allclose(leaf.grad, one.grad.numpy(), **CLOSE)


@given(
    name=st.sampled_from(sorted(BINARY)),
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=2),
    data=st.data(),
)
def test_arithmetic_broadcasts(name: str, shapes: Any, data: st.DataObject) -> None:
    a, b = (data.draw(arrays(shape)) for shape in shapes.input_shapes)
    check(BINARY[name], a, b)
    np.testing.assert_allclose(BINARY[name](mc.Tensor(a), b), BINARY[name](a, b), rtol=REORDERED)
    np.testing.assert_allclose(BINARY[name](a, mc.Tensor(b)), BINARY[name](a, b), rtol=REORDERED)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("scalar", [2, 0.5, np.float32(1.5), np.float64(1.25), np.int64(3)])
def test_scalars_on_both_sides(name: str, scalar: Any) -> None:
    a = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)
    check(lambda x: BINARY[name](x, scalar), a, torch_function=lambda x: BINARY[name](x, float(scalar)))
    check(lambda x: BINARY[name](scalar, x), a, torch_function=lambda x: BINARY[name](float(scalar), x))


@given(
    shapes=hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, max_side=4),
    data=st.data(),
)
@settings(max_examples=60)
def test_matrix_products_broadcast(shapes: Any, data: st.DataObject) -> None:
    a, b = (data.draw(arrays(shape)) for shape in shapes.input_shapes)
    check(operator.matmul, a, b)
    # NumPy's sums have another order.
    np.testing.assert_allclose(a @ mc.Tensor(b), a @ b, rtol=1e-5)


@given(shape=hnp.array_shapes(min_dims=0, max_dims=4, max_side=4), data=st.data())
def test_sums_and_means(shape: tuple[int, ...], data: st.DataObject) -> None:
    a = data.draw(arrays(shape))
    axes = data.draw(st.none() | hnp.valid_tuple_axes(len(shape), min_size=1)) if shape else None
    keep = data.draw(st.booleans())
    dims = tuple(range(len(shape))) if axes is None else axes
    for name in ("sum", "mean"):
        check(
            lambda x, name=name: getattr(x, name)(axes, keepdims=keep),
            a,
            torch_function=lambda x, name=name: (
                getattr(torch, name)(x, dims, keepdim=keep) if shape else x * 1
            ),
        )
    # NumPy's sums have another order.
    assert np.sum(mc.Tensor(a)).item() == pytest.approx(float(a.sum(dtype=np.float64)), rel=1e-5)


@given(shape=hnp.array_shapes(max_dims=4, max_side=4), data=st.data())
def test_shapes_and_axes(shape: tuple[int, ...], data: st.DataObject) -> None:
    a = data.draw(arrays(shape))
    axes = data.draw(st.permutations(range(len(shape))))
    signed = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    check(lambda x: x.transpose(*signed) * 1.0, a, torch_function=lambda x: x.permute(*signed) * 1.0)
    check(lambda x: x.T, a, torch_function=lambda x: x.permute(*reversed(range(x.ndim))))
    check(lambda x: x.reshape(-1), a)
    check(
        lambda x: np.reshape(np.transpose(x), (a.size, 1)),
        a,
        torch_function=lambda x: x.permute(*reversed(range(x.ndim))).reshape(a.size, 1),
    )


@given(shape=hnp.array_shapes(max_dims=3, max_side=5), data=st.data())
def test_slices_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    a = data.draw(arrays(shape))
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    leaf = mc.Tensor(a, requires_grad=True)
    y, want = leaf[key], a[key]
    assert y.shape == np.shape(want)
    np.testing.assert_array_equal(y, want)
    y.backward(np.full(y.shape, 3, np.float32))
    exact = np.zeros_like(a)
    exact[key] = 3
    np.testing.assert_array_equal(leaf.grad, exact)


@given(shape=hnp.array_shapes(max_dims=3, max_side=4), data=st.data())
def test_arrays_as_indices_count_each_use(shape: tuple[int, ...], data: st.DataObject) -> None:
    a = data.draw(arrays(shape))
    index = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=4)))
    check(lambda x: x[index], a, torch_function=lambda x: x[tuple(map(torch.as_tensor, index))])


def test_a_mask_and_a_tensor_are_indices() -> None:
    a = np.array([[1.0, -2.0], [3.0, -4.0]], np.float32)
    check(lambda x: x[np.asarray(x) > 0], a, torch_function=lambda x: x[x > 0])
    np.testing.assert_array_equal(mc.Tensor(a)[mc.Tensor(np.array([1, 1], np.int32))], a[[1, 1]])
    np.testing.assert_array_equal(mc.Tensor(a)[..., mc.Tensor([1])], a[..., [1]])


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "square", "tanh", "absolute", "negative"])
def test_functions_of_numpy(name: str) -> None:
    a = np.linspace(0.25, 2, 12, dtype=np.float32).reshape(3, 4)
    check(getattr(np, name), a, torch_function=getattr(torch, name))
    check(lambda x: abs(-x), a)


def test_powers_of_zero_have_the_gradients_of_pytorch() -> None:
    for exponent in (0.0, 1.0, 2.0):
        check(lambda x, e=exponent: x**e, np.zeros(3, np.float32))
    check(operator.pow, np.zeros(3, np.float32), np.array([0.0, 1.0, 2.0], np.float32))


def test_a_value_used_twice_gets_both_gradients() -> None:
    a = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)
    check(lambda x: x * x + x @ x.T @ x - x / x.sum(0), a)
    check(lambda x: sum((row * row).mean() for row in x), a)


def test_a_network_in_operators_has_the_gradients_of_the_fused_ops() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 5, 8), np.float32), rng.standard_normal((8, 8), np.float32)
    fused, plain = (mc.Tensor(w, requires_grad=True) for _ in range(2))
    ops.activation(ops.linear(ops.rms_norm(x), fused), activation="tanh").sum().backward()
    h = x / (mc.Tensor(x) ** 2).mean(-1, keepdims=True) ** 0.5
    np.tanh(h @ plain).sum().backward()
    # PyTorch computes in float32 too, with its sums in another order or with one more op.
    np.testing.assert_allclose(plain.grad, fused.grad, rtol=1e-4, atol=1e-4)


def test_losses_are_float64_and_have_gradients() -> None:
    rng = np.random.default_rng(0)
    h, head = rng.standard_normal((1, 4, 8), np.float32), rng.standard_normal((11, 8), np.float32)
    ids = np.array([[1, 2, 3, 4]], np.int32)
    leaf, again = mc.Tensor(head, requires_grad=True), mc.Tensor(head, requires_grad=True)
    loss, count, _ = ops.cross_entropy(mc.Tensor(h), leaf, ids)
    mean = loss.sum() / count.sum() * 1.0
    assert mean.dtype == np.float64 and f"{mean:.3f}" == f"{mean.item():.3f}"
    mean.backward()
    ops.cross_entropy(mc.Tensor(h), again, ids)[0].backward()
    assert leaf.grad is not None and again.grad is not None
    np.testing.assert_allclose(leaf.grad, again.grad / 4, rtol=REORDERED)


# ---------------------------------------------------------------- both executors


def formula(x: Any, w: Any) -> Any:
    """Compute with every kind of operator; sums and multiplications of equal shapes are ops of the core."""
    h = ops.rms_norm(x, w[0] * 0.5)
    h = h @ w + h * 2 - x / (w.sum() ** 2 + 1)
    parts = np.tanh(h[:, 1:] * h[:, :-1]).reshape(-1, 8)
    return (parts @ w.T).mean(0, keepdims=True) + parts.sum(0, keepdims=True)


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_both_executors_give_the_same_bits(kind: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 5, 8), np.float32), rng.standard_normal((8, 8), np.float32)
    with mc.precision(kind):
        leaf = mc.Tensor(w, requires_grad=True)
        out = formula(mc.Tensor(x), leaf)
        out.sum().reshape(1).backward()

    store = _core.ParamStore(compute={"fp32": "float32", "bf16": "bfloat16"}[kind])
    recorder = Recorder(store, training=True, samples=2, shards=1)
    weight = recorder.parameter("w", (8, 8), role="matrix", fan_in=8, fan_out=8, init="zeros")
    store.allocate()
    store.set(0, "w", w)
    result = formula(recorder.input("x", (2, 5, 8), "float32"), weight)
    # A graph starts backward at a loss whose gradient is one.
    loss = ops.custom(lambda a: a, lambda d, a: np.ones_like(a), result.sum().reshape(1))
    executor = _core.Executor(recorder.graph, store, losses=[loss.number], keep=[result.number])
    executor.set("x", x)
    executor.run()
    np.testing.assert_array_equal(executor.get(result.number), out.data)
    np.testing.assert_array_equal(executor.gradient("w"), leaf.grad)


# ---------------------------------------------------------------- the object


def test_it_looks_like_an_array() -> None:
    t = mc.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert repr(t) == "Tensor([[1., 2.],\n        [3., 4.]], shape=(2, 2), requires_grad=True)"
    assert repr(mc.Tensor(np.array(3, np.int32))) == "Tensor(3, shape=(), dtype=int32)"
    assert len(t) == 2 and t.ndim == 2 and t.size == 4 and [row.sum().item() for row in t] == [3.0, 7.0]
    assert (t > 2).tolist() == np.less(2, t).tolist() == [[False, False], [True, True]]
    assert (t == t.data).all() and not (np.ones((2, 2), np.float32) * 9 <= t).any() and len({t, t}) == 1
    assert float(t[0, 0]) == 1.0 and int(t[1, 1]) == 4 and bool(t[0, 0]) and isinstance(t.sum().item(), float)


def test_as_an_array_it_is_read_only() -> None:
    t = mc.Tensor(np.zeros(3, np.float32))
    view = np.asarray(t)
    assert np.shares_memory(view, t.data) and not view.flags.writeable and t.data.flags.writeable
    assert np.array(t).flags.writeable and not np.shares_memory(np.array(t), t.data)
    assert np.asarray(t, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(t, np.float64, copy=False)


def test_integers_stay_integers() -> None:
    ids = mc.Tensor(np.array([1, 2, 3], np.int32))
    assert (ids + 1).dtype == ids.sum().dtype == ids[1:].dtype == np.int32
    assert (ids / 2).dtype == (ids * mc.Tensor([0.5, 1.0, 2.0])).dtype == np.float32


ERRORS: dict[str, tuple[Function, type[Exception], str]] = {
    "shapes": (
        lambda t: t + np.ones(3),
        ValueError,
        r"\[add\] expected shapes that broadcast, got \(2, 2\) and \(3,\)",
    ),
    "matmul": (
        lambda t: t @ np.ones((3, 2)),
        ValueError,
        r"\[@\] .* left shape \(2, 2\) .* right shape \(3, 2\)",
    ),
    "text": (lambda t: t + "1", TypeError, "expected a tensor, an array or a number"),
    "item": (lambda t: t.item(), ValueError, r"\[item\] expected one number, got shape \(2, 2\)"),
    "truth": (lambda t: bool(t), ValueError, r"\[item\] expected one number"),
    "in place": (lambda t: t.__setitem__(0, 1), TypeError, "not changed in place"),
    "a function without a gradient": (lambda t: np.sin(t), TypeError, r"type np.sin\(np.asarray\(t\)\)"),
    "backward": (lambda t: (t * 2).backward(), ValueError, r"type t.sum\(\).backward\(\)"),
    "backward of a leaf": (lambda t: t.backward(), ValueError, r"\[backward\] this tensor is not the result"),
    "retain_graph": (lambda t: t.sum().backward(retain_graph=True), TypeError, r"type loss.backward\(\)"),
    "len": (lambda t: len(t.sum()), TypeError, r"type t.item\(\)"),
}


@pytest.mark.filterwarnings("ignore:.*float64 arrays")
@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_to_type(name: str) -> None:
    call, kind, says = ERRORS[name]
    with pytest.raises(kind, match=says) as caught:
        call(mc.Tensor(np.ones((2, 2), np.float32), requires_grad=True))
    assert "\n" not in str(caught.value)


def test_float64_is_converted_with_one_warning() -> None:
    code = (
        "import numpy as np, mudd_core as mc\n"
        "t = mc.Tensor(np.ones(2)) + np.ones(2)\n"
        "assert t.dtype == np.float32 and mc.Tensor(np.ones(2), requires_grad=True).dtype == np.float32\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("float64 arrays are converted to float32") == 1
    assert done.stderr.startswith("<string>:2: UserWarning")


def mixed(x: Any, w: Any) -> Any:
    """Compute with weights that are broadcast over samples, and with operators whose first axis is not the batch."""
    h = x * w[0] + w  # [B, T, D], as [D] and [T, D]
    h = h @ (w * 0.5) + (h @ w[1]).reshape(4, 8, 1) * np.linspace(0, 1, 32, dtype=np.float32).reshape(4, 8, 1)
    back = h[::-1].transpose(1, 0, 2) * 0.5
    return back.transpose(1, 0, 2) * h.reshape(32, 8).reshape(4, 8, 8) - w.sum() / h.mean(0)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_gradients_follow_the_tree_over_shards_in_both_executors(shards: int) -> None:
    from mudd_core.graph import scopes

    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((4, 8, 8), np.float32), rng.standard_normal((8, 8), np.float32)
    with scopes.shards(4, shards):
        leaf = mc.Tensor(w, requires_grad=True)
        out = mixed(ops.rms_norm(mc.Tensor(x)), leaf)
        out.sum().backward()

    store = _core.ParamStore()
    recorder = Recorder(store, training=True, samples=4, shards=shards)
    weight = recorder.parameter("w", (8, 8), role="matrix", fan_in=8, fan_out=8, init="zeros")
    store.allocate()
    store.set(0, "w", w)
    result = mixed(ops.rms_norm(recorder.input("x", (4, 8, 8), "float32")), weight)
    loss = ops.custom(lambda a: a, lambda d, a: np.ones_like(a), result.sum().reshape(1))
    executor = _core.Executor(recorder.graph, store, losses=[loss.number], keep=[result.number])
    executor.set("x", x)
    executor.run()
    np.testing.assert_array_equal(executor.get(result.number), out.data)
    np.testing.assert_array_equal(executor.gradient("w"), leaf.grad)
    exact = torch.tensor(w, dtype=torch.float64, requires_grad=True)
    tx = torch.tensor(x, dtype=torch.float64)
    tx = tx * torch.rsqrt((tx * tx).mean(-1, keepdim=True) + 1e-6)
    h = tx * exact[0] + exact
    slope = torch.linspace(0, 1, 32, dtype=torch.float64).reshape(4, 8, 1)
    h = h @ (exact * 0.5) + (h @ exact[1]).reshape(4, 8, 1) * slope
    want = h.flip(0) * 0.5 * h - exact.sum() / h.mean(0)
    want.sum().backward()  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(out, want.detach().numpy(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(leaf.grad, exact.grad, rtol=2e-3, atol=2e-2)


LOSES_THE_GRADIENT: dict[str, Callable[[Any], Any]] = {
    "np.concatenate": lambda t: np.concatenate([t, t]),
    "np.stack": lambda t: np.stack((t, t)),
    "np.where": lambda t: np.where(t > 1, t, 0),
    "np.dot": lambda t: np.dot(t, t),
    "np.max": lambda t: np.max(t),
    "np.linalg.norm": lambda t: np.linalg.norm(t),
}


@pytest.mark.parametrize("name", LOSES_THE_GRADIENT)
def test_functions_of_numpy_that_would_lose_a_gradient_are_refused(name: str) -> None:
    numbers = np.array([[1, 2], [3, 4]], np.float32)
    leaf = mc.Tensor(numbers, requires_grad=True)
    for tensor in (leaf, leaf * 2):
        with pytest.raises(TypeError, match=rf"\[{name}\] no gradient is known; pass np.asarray\(t\)"):
            LOSES_THE_GRADIENT[name](tensor)
    plain = LOSES_THE_GRADIENT[name](mc.Tensor(numbers))
    assert np.array_equal(plain, LOSES_THE_GRADIENT[name](numbers)), "numbers alone"


def test_functions_of_numpy_that_read_numbers_take_tensors() -> None:
    tensor = mc.Tensor([[1.0, 4.0], [3.0, 2.0]], requires_grad=True)
    assert np.argmax(tensor) == 1 and np.shape(tensor) == (2, 2) and np.size(tensor) == 4
    assert np.allclose(tensor, tensor) and np.array_equal(np.argsort(tensor), [[0, 1], [1, 0]])
    np.mean(tensor, axis=0, keepdims=True).sum().backward()
    assert tensor.grad is not None and (tensor.grad == 0.5).all()
