"""Every op and its backward on NumPy arrays, against the float64 formulas and for every memory layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core, ops
from mudd_core.graph import scopes, tape
from op_case import Case, integers, normal
from op_cases import cases
from places import TESTS
from reference.bounds import ROWS, op_bound

CASES = cases()
# Their output gradient is the weight of the summed loss, 1 by default.
LOSSES = tuple(spec.name for spec in _core.op_specs() if spec.outputs[0].loss)
IDS = [f"{i}-{c.op}" for i, c in enumerate(CASES)]


def close(got: Any, want: Any, op: str, name: str = "", addends: float = 1.0) -> None:
    """Check that the results agree within the op's bound, relative to the largest entry, 1, or sqrt(addends).

    A sum of n values near one with random signs is about sqrt(n), even if the final sum is near zero.
    """
    if want is None:
        assert got is None, name
        return
    assert got.shape == want.shape, name
    scale = max(1.0, float(np.abs(want).max()), float(np.sqrt(addends)))
    np.testing.assert_allclose(got, want, rtol=0, atol=op_bound(op) * scale, err_msg=f"{op} {name}")


def forward_of(case: Case, inputs: list[Any]) -> tuple[Any, ...]:
    options = {k: v for k, v in case.options.items() if k != "dloss"}
    y = getattr(ops, case.op)(*inputs, **options)
    return y if isinstance(y, tuple) else (y,)


def backward_of(case: Case, dy: Any, inputs: list[Any]) -> tuple[Any, ...]:
    options = {k: v for k, v in case.options.items() if k != "dloss"}
    return tuple(getattr(ops, f"{case.op}_backward")(dy, *inputs, **options))


def gradient_for(case: Case) -> Any:
    """Return the output gradient of a case: a weight for a loss, else normal values; a tuple for several outputs."""
    if case.op in LOSSES:
        return case.options.get("dloss")
    dy = tuple(None if y.dtype == np.int32 else normal(*y.shape) for y in forward_of(case, case.inputs))
    return dy if len(dy) > 1 else dy[0]


def over(arrays: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to an array or to each array of a tuple; return None for None."""
    if isinstance(arrays, tuple):
        return tuple(None if a is None else change(a) for a in arrays)
    return None if arrays is None else change(arrays)


def test_every_op_of_the_face_has_a_case() -> None:
    face = {name for name in ops.__all__ if not name.endswith("_backward")} - {"custom"}
    assert face == {case.op for case in CASES}
    assert face == {spec.name for spec in _core.op_specs()}


def test_every_op_has_bounds_with_a_reason_and_room_above_what_was_seen() -> None:
    table = TESTS / "tolerances.inc"
    assert len(ROWS) == table.read_text().count("\nMUDD_TOLERANCE(")  # every entry has this format
    assert {spec.name for spec in _core.op_specs()} <= {name for _, name, *_ in ROWS}
    results = [f"{name}.{result}" for _, name, result, *_ in ROWS]
    assert results == sorted(set(results))
    for _, name, result, bound, seen, reason in ROWS:
        assert len(reason.split()) >= 2, (name, result)
        assert float(seen) < int(bound) <= max(2, 8 * float(seen) + 4), (name, result)
    sources = "".join(file.read_text() for file in (table.parent / "cpp").glob("*_test.cc"))
    unused = {name for name in results if f'tolerance("{name}")' not in sources}
    assert unused == {
        "add.y",
        "dropout.y",
        "lion.w",
        "moe_balance.loss",
        "sgd.w",
    }  # only the Python tests use these


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_forward_and_backward_follow_the_formulas(case: Case) -> None:
    want = case.forward(*case.inputs)
    for got, exact in zip(
        forward_of(case, case.inputs), want if isinstance(want, tuple) else (want,), strict=True
    ):
        close(got, exact, case.op)
    dy = gradient_for(case)
    gradients = backward_of(case, dy, case.inputs)
    for index, (got, exact) in enumerate(zip(gradients, case.backward(dy, *case.inputs), strict=True)):
        addends = dy.size / exact.size if isinstance(dy, np.ndarray) and exact is not None else 1.0
        close(got, exact, case.op, f"gradient of input {index}", addends)


def wider_rows(a: Any) -> Any:
    """Return a view of the array with a row stride that is three longer."""
    wide = np.full((*a.shape[:-1], a.shape[-1] + 3), 99, a.dtype)
    wide[..., 1:-2] = a
    return wide[..., 1:-2]


def every_other(a: Any) -> Any:
    twice = np.full((*a.shape[:-1], 2 * a.shape[-1]), 99, a.dtype)
    twice[..., ::2] = a
    return twice[..., ::2]


def backwards(a: Any) -> Any:
    return np.ascontiguousarray(a[::-1])[::-1]


def misaligned(a: Any) -> Any:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    b = raw[1:].view(a.dtype).reshape(a.shape)
    b[...] = a
    assert not b.flags.aligned
    return b


def fortran(a: Any) -> Any:
    return np.asfortranarray(a)


def read_only(a: Any) -> Any:
    b = a.copy()
    b.flags.writeable = False
    return b


@pytest.mark.parametrize("lay", [wider_rows, every_other, backwards, misaligned, fortran, read_only])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_bits_never_depend_on_how_arrays_lie(case: Case, lay: Callable[[Any], Any]) -> None:
    dy = gradient_for(case)
    other = [None if i is None else lay(i) for i in case.inputs]
    before = [None if i is None else i.copy() for i in other]
    for a, b in zip(forward_of(case, case.inputs), forward_of(case, other), strict=True):
        assert np.array_equal(a, b)
    gradients = backward_of(case, over(dy, lay), other)
    for a, b in zip(backward_of(case, dy, case.inputs), gradients, strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)
    for a, b in zip(other, before, strict=True):
        assert a is None or np.array_equal(a, b), "an input was changed"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_results_are_new_arrays_of_plain_float32(case: Case) -> None:
    for y in forward_of(case, case.inputs):
        assert y.flags.c_contiguous and y.flags.writeable
        assert all(i is None or not np.shares_memory(y, i) for i in case.inputs)
        sums = case.op in LOSSES and y.ndim == 1
        assert y.dtype == (np.float64 if sums else np.float32) or y.dtype == np.int32


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_no_rows_are_fine(case: Case) -> None:
    """An empty batch returns empty results, and the gradients of weights are zero."""
    options = {k: v for k, v in case.options.items() if k != "dloss"}
    call = _core.Call(case.op, options, case.inputs, [])
    inputs = [
        None if given is None else given if call.weight_like(place) else given[:0]
        for place, given in enumerate(case.inputs)
    ]
    y = forward_of(case, inputs)
    zeros = tuple(None if a.dtype == np.int32 else np.zeros_like(a) for a in y)
    dy = case.options.get("dloss") if case.op in LOSSES else zeros
    for given, gradient in zip(inputs, backward_of(case, dy, inputs), strict=True):
        assert gradient is None or (gradient.shape == given.shape and not gradient.any())


# ---------------------------------------------------------------- caches, tape, shards


def test_decoding_with_a_cache_equals_the_full_pass() -> None:
    q, k, v = normal(2, 6, 32), normal(2, 6, 16), normal(2, 6, 16)
    options = {"n_head": 4, "n_kv_head": 2}
    full = ops.attention(q, k, v, **options)
    k_cache, v_cache = np.zeros((2, 2, 9, 8), np.float32), np.zeros((2, 2, 9, 8), np.float32)
    at = 0
    for take in (3, 1, 2):
        with scopes.cached(at):
            part = [np.ascontiguousarray(x[:, at : at + take]) for x in (q, k, v)]
            y = ops.attention(*part, k_cache=k_cache, v_cache=v_cache, **options)
        assert np.array_equal(y, full[:, at : at + take])
        at += take
    assert np.array_equal(k_cache[:, :, :6].swapaxes(1, 2).reshape(2, 6, 16), k)
    with scopes.cached(at + 3), pytest.raises(ValueError, match=r"\[attention\] cache_length"):
        ops.attention(*part, k_cache=k_cache, v_cache=v_cache, **options)


def test_ngrams_with_a_cache_equal_the_full_pass_and_a_full_cache_drops_the_oldest_id() -> None:
    ids, table = integers(9, 2, 14), normal(50, 8)
    full = ops.ngram_rows(ids, table, orders="2,3", end=4)
    cache = np.full((2, 1, 6, 1), np.nan, np.float32)  # places that no id was written to are not read
    at = 0
    for take in (3, 1, 2, *[1] * 8):
        with scopes.cached(at):
            part = np.ascontiguousarray(ids[:, at : at + take])
            y = ops.ngram_rows(part, table, cache=cache, orders="2,3", end=4)
        assert np.array_equal(y, full[:, at : at + take])
        at += take
    assert np.array_equal(cache[:, 0, [2, 3, 4, 5, 0, 1], 0], ids[:, -6:])
    with scopes.cached(at), pytest.raises(ValueError, match=r"\[ngram_rows\] cache_length"):
        ops.ngram_rows(ids[:, :2], table, cache=cache)
    with scopes.cached(at), pytest.raises(ValueError, match=r"\[ngram_rows\] cache: expected one"):
        ops.ngram_rows(ids, table)
    assert ops.ngram_rows(ids[:0, :6], table, cache=cache[:0]).shape == (0, 6, 8)


@pytest.mark.parametrize("lay", [read_only, wider_rows, fortran])
def test_a_cache_that_cannot_be_written_in_place_is_refused(lay: Callable[[Any], Any]) -> None:
    q, cache = normal(1, 2, 8), np.zeros((1, 2, 4, 4), np.float32)
    with pytest.raises(ValueError, match=r"\[attention\].*writable C-contiguous"):
        ops.attention(q, q, q, k_cache=lay(cache), v_cache=cache, n_head=2)


def composition(x: Any, gain: Any, w: Any, table: Any, ids: Any) -> Any:
    """Compute a small net in which a weight is used twice and a value has three consumers."""
    h = ops.add(x, ops.embedding(ids, table))
    n = ops.rms_norm(h, gain)
    h = ops.linear(ops.glu(ops.linear(n, w), n), w, None, h)
    return ops.cross_entropy(ops.rms_norm(h, gain), table, ids)[0]


def test_tape_gradients_of_a_composition() -> None:
    import torch

    x, gain, w, table, ids = normal(2, 5, 8), normal(8), normal(8, 8) * 0.3, normal(13, 8), integers(13, 2, 5)
    leaves = [tape.Tensor(a, requires_grad=True) for a in (x, gain, w, table)]
    loss = composition(*leaves, ids)
    loss.backward()

    def norm(h: Any, g: Any) -> Any:
        return h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * g

    tx, tg, tw, tt = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, gain, w, table))
    index = torch.tensor(ids, dtype=torch.int64)
    h = tx + tt[index]
    n = norm(h, tg)
    h = (torch.nn.functional.silu(n @ tw) * n) @ tw + h
    want = torch.nn.functional.cross_entropy(
        (norm(h, tg) @ tt.T).flatten(0, 1), index.flatten(), reduction="sum"
    )
    want.backward()
    close(loss.data, want.detach().numpy().reshape(1), "cross_entropy", "loss")
    for leaf, exact in zip(leaves, (tx, tg, tw, tt), strict=True):
        assert exact.grad is not None
        close(leaf.grad, exact.grad.numpy(), "cross_entropy")


def test_backward_again_adds_to_grad() -> None:
    a = tape.Tensor(normal(3, 4), requires_grad=True)
    for _ in range(2):
        ops.activation(a, activation="relu").sum().backward()
    assert a.grad is not None
    assert np.array_equal(a.grad, 2.0 * (a.data > 0))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_result_multiplied_by_itself_gets_both_gradients(threads: int) -> None:
    a, dy = tape.Tensor(normal(40, 40), requires_grad=True), normal(40, 40)
    mc.set_num_threads(threads)
    try:
        h = ops.activation(a, activation="relu")
        ops.linear(h, h).backward(dy)
    finally:
        mc.set_num_threads(0)
    exact, d = np.maximum(a.data, 0).astype(np.float64), dy.astype(np.float64)
    assert a.grad is not None
    close(a.grad, (d @ exact.T + exact.T @ d) * (a.data > 0), "linear")


def test_hidden_states_that_are_the_head_too_get_both_gradients_in_every_chunk() -> None:
    count, width = 3000, 8  # 34 MiB of logits, computed in chunks
    own = np.random.default_rng(3)  # a separate generator, because the error depends on the values
    a = tape.Tensor(own.standard_normal((count, width)).astype(np.float32), requires_grad=True)
    targets = np.arange(count, dtype=np.int32)[::-1].copy()
    mc.set_num_threads(2)
    try:
        h = ops.activation(a, activation="relu")
        ops.cross_entropy(h, h, targets)[0].backward()
    finally:
        mc.set_num_threads(0)
    exact = np.maximum(a.data, 0).astype(np.float64)
    logits = exact @ exact.T
    g = np.exp(logits - logits.max(-1, keepdims=True))
    g /= g.sum(-1, keepdims=True)
    g[np.arange(count), targets] -= 1
    assert a.grad is not None
    close(a.grad, (g @ exact + g.T @ exact) * (a.data > 0), "cross_entropy")


def test_only_leaves_that_ask_get_gradients() -> None:
    a, b = tape.Tensor(normal(3, 4), requires_grad=True), tape.Tensor(normal(3, 4))
    y = ops.add(a, b)
    y.backward(np.full((3, 4), 2.0, np.float32))
    assert a.grad is not None and (a.grad == 2).all() and b.grad is None
    assert not isinstance(ops.add(a.data, b.data), tape.Tensor)
    with pytest.raises(ValueError, match=r"\[backward\]"):
        ops.add(b, b).backward()


def test_shards_change_the_order_of_sums_and_nothing_else() -> None:
    x, w, dy = normal(8, 30, 64), normal(64, 48), normal(8, 30, 48)
    plain = ops.linear_backward(dy, x, w)
    with scopes.shards(8, 4):
        cut = ops.linear_backward(dy, x, w)
    assert np.array_equal(plain[0], cut[0])
    each = [ops.linear_backward(dy[i : i + 2], x[i : i + 2], w)[1] for i in range(0, 8, 2)]
    assert np.array_equal(cut[1], (each[0] + each[1]) + (each[2] + each[3]))  # the tree over shards
    assert not np.array_equal(plain[1], cut[1])  # shows that the line above can fail
    close(plain[1], x.reshape(-1, 64).astype(np.float64).T @ dy.reshape(-1, 48), "linear")
    with (
        scopes.shards(8, 4),
        pytest.raises(ValueError, match=r"\[linear\] input 0: expected rows divisible by .* \(8\)"),
    ):
        ops.linear(normal(9, 64), w)
    with pytest.raises(ValueError, match=r"\[shards\] count"), scopes.shards(8, 3):
        pass


@pytest.mark.parametrize(
    "shape", [(3, 1, 6, 8), (2, 4, 1, 8), (3, 1, 1, 8), (2, 1, 3, 1, 8), (1, 5, 8), (4, 1, 8)]
)
def test_slices_with_axes_of_one_entry_are_read_where_they_lie(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    gain = rng.standard_normal(8, dtype=np.float32)
    big = rng.standard_normal([2 * n for n in shape[:-1]] + [8], dtype=np.float32)
    for cut in itertools.product((slice(None, None, 2), "half", "reversed"), repeat=len(shape) - 1):
        places = {"half": lambda n: slice(0, n), "reversed": lambda n: slice(n - 1, None, -1)}
        index = tuple(places[c](n) if isinstance(c, str) else c for c, n in zip(cut, shape[:-1], strict=True))
        part = big[index]
        assert part.shape == shape
        want = ops.rms_norm(np.ascontiguousarray(part), gain)
        assert np.array_equal(ops.rms_norm(part, gain), want), index
