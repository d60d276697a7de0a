"""Wrong calls of ops: their messages, and that every call returns a value or raises a clear error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mudd_core import _core, ops
from mudd_core.graph import tape
from op_cases import cases

X = np.ones((2, 3, 8), np.float32)
IDS = np.zeros((2, 3), np.int32)
TABLE = np.ones((5, 8), np.float32)

# Call, arguments, options, error, and required parts of the message: the op, the argument and the rule. Mistakes that a
# declaration rules out are in test_op_specs.py.
MISTAKES: list[tuple[str, list[Any], dict[str, Any], type[Exception], list[str]]] = [
    (
        "rms_norm",
        [X, np.ones(7, np.float32)],
        {},
        ValueError,
        ["[rms_norm] gain", "float32[8]", "float32[7]"],
    ),
    ("rms_norm", ["text"], {}, TypeError, ["[rms_norm] x", "expected float32"]),
    ("rms_norm", [np.float32(3)], {}, ValueError, ["[rms_norm]", "expected at least one axis"]),
    ("rms_norm", [X[..., :0]], {}, ValueError, ["[rms_norm] x", "at least one column"]),
    ("rms_norm", [X], {"eps": [1]}, TypeError, ["[rms_norm] eps", "expected bool, int, float or str"]),
    ("layer_norm", [X, None, TABLE], {}, ValueError, ["[layer_norm] bias", "float32[8]", "float32[5, 8]"]),
    ("linear", [X, TABLE], {}, ValueError, ["[linear] w", "8 rows", "float32[5, 8]"]),
    ("linear", [X, TABLE.T, X[0, 0]], {}, ValueError, ["[linear] bias", "float32[5]", "float32[8]"]),
    ("linear", [X, TABLE, None, X], {"transposed": True}, ValueError, ["[linear] residual", "[2, 3, 5]"]),
    ("linear", [X, X], {}, ValueError, ["[linear] w", "expected a matrix"]),
    ("rope", [X], {"n_head": 3}, ValueError, ["[rope] x", "divisible by 3"]),
    ("rope", [X], {"n_head": 2**70}, ValueError, ["[rope] n_head", "64 bits"]),
    ("rope", [X, IDS + 9], {"n_head": 2}, ValueError, ["[rope] positions", "0 to 2", "got 9"]),
    ("rope", [X, IDS[:1]], {"n_head": 2}, ValueError, ["[rope] positions", "[2, 3]"]),
    ("rope", [X], {"n_head": 2, "fraction": 0.25}, ValueError, ["[rope] fraction", "even"]),
    ("activation", [X], {"activation": "a\ud800"}, ValueError, ["[activation]", "UTF-8"]),
    ("glu", [X, X[:1]], {}, ValueError, ["[glu] up", "float32[2, 3, 8]", "float32[1, 3, 8]"]),
    ("add", [X, X[0]], {}, ValueError, ["[add] b", "float32[2, 3, 8]"]),
    ("embedding", [IDS + 5, TABLE], {}, ValueError, ["[embedding] ids", "[0, 5)", "got 5 at [0, 0]"]),
    ("embedding", [IDS - 1, TABLE], {}, ValueError, ["[embedding] ids", "[0, 5)", "got -1 at [0, 0]"]),
    ("embedding", [None, TABLE], {}, ValueError, ["[embedding] ids", "nothing"]),
    ("embedding", [IDS, TABLE], {"positions": True}, ValueError, ["[embedding] ids", "none"]),
    (
        "embedding",
        [None, TABLE[:2], X],
        {"positions": True},
        ValueError,
        ["[embedding] positions", "at most 2"],
    ),
    ("ngram_rows", [X, TABLE], {}, TypeError, ["[ngram_rows] ids", "expected int32, got float32"]),
    ("ngram_rows", [IDS[0], TABLE], {}, ValueError, ["[ngram_rows] ids", "int32[B, T]", "int32[3]"]),
    ("ngram_rows", [IDS - 1, TABLE], {}, ValueError, ["[ngram_rows] ids", "[0, 2147483648)", "-1 at [0, 0]"]),
    ("ngram_rows", [IDS, X], {}, ValueError, ["[ngram_rows] table", "float32[R, D]", "float32[2, 3, 8]"]),
    ("ngram_rows", [IDS, TABLE, IDS[:1]], {}, ValueError, ["[ngram_rows] segments", "int32[2, 3]", "[1, 3]"]),
    (
        "ngram_rows",
        [IDS, TABLE, None, X],
        {},
        ValueError,
        ["[ngram_rows] cache", "[2, 1, Tmax, 1]", "Tmax >= 3"],
    ),
    (
        "ngram_rows",
        [IDS, TABLE],
        {"orders": "2,4"},
        ValueError,
        ["[ngram_rows] orders", "1 to 3", "got '2,4'"],
    ),
    ("ngram_rows", [IDS, TABLE], {"orders": 2}, TypeError, ["[ngram_rows] orders"]),
    ("attention", [X, X, X], {"n_head": 3}, ValueError, ["[attention] q", "divisible by 3"]),
    ("attention", [X, X, X], {"n_head": 2, "n_kv_head": 4}, ValueError, ["[attention] k", "B, T, hd"]),
    ("attention", [X, X, X[:1]], {"n_head": 2}, ValueError, ["[attention] v", "shape of k"]),
    ("attention", [X, X, X, IDS[0]], {"n_head": 2}, ValueError, ["[attention] segments", "[2, 3]"]),
    ("attention", [X, X, X, None, None, None, X], {"n_head": 2}, ValueError, ["[attention] v_cache"]),
    ("attention", [X, X, X, None, None, X], {"n_head": 2}, ValueError, ["[attention] k_cache", "Tmax"]),
    ("pattention", [X, TABLE, TABLE[:4]], {}, ValueError, ["[pattention] value", "[5, d_out]", "[4, 8]"]),
    ("pattention_backward", [(X, X), X, TABLE, TABLE], {}, ValueError, ["[pattention] backward", "1 output"]),
    ("cross_entropy", [X, TABLE, IDS + 5], {}, ValueError, ["[cross_entropy] targets", "below 5", "got 5"]),
    ("cross_entropy", [X, TABLE[:, :7], IDS], {}, ValueError, ["[cross_entropy] head", "[V, 8]"]),
    ("cross_entropy", [X, TABLE, IDS[:1]], {}, ValueError, ["[cross_entropy] targets", "[2, 3]", "[1, 3]"]),
    ("add_backward", [X[:1], X, X], {}, ValueError, ["[add] gradient", "float32[2, 3, 8]"]),
    (
        "cross_entropy_backward",
        [np.ones(2), X, TABLE, IDS],
        {},
        ValueError,
        ["[cross_entropy] gradient", "[1]"],
    ),
    ("custom", [abs, abs, "text"], {}, TypeError, ["[custom] input 0"]),
    ("custom", [3, abs, X], {}, ValueError, ["[custom] forward", "functions"]),
    ("custom", [lambda x: x.tolist(), abs, X], {}, TypeError, ["[custom] output", "numpy array", "list"]),
]


@pytest.mark.parametrize(("call", "arguments", "options", "error", "parts"), MISTAKES)
def test_messages_name_op_argument_and_rule(
    call: str, arguments: list[Any], options: dict[str, Any], error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as caught:
        getattr(ops, call)(*arguments, **options)
    assert type(caught.value) is error
    for part in parts:
        assert part in str(caught.value)


def test_an_unknown_op_is_an_error() -> None:
    with pytest.raises(ValueError, match="no op is called 'softmax'"):
        _core.Call("softmax", {}, [X], [False])


def test_numpy_integers_are_ints() -> None:
    assert np.array_equal(ops.rope(X, n_head=np.int64(2)), ops.rope(X, n_head=2))


def test_a_custom_backward_must_give_what_is_wanted() -> None:
    for backward, rule in [
        (lambda d, x: None, "gradient of input 0 is wanted"),
        (lambda d, x: (d, d), "expected 1 gradients, got 2"),
        (lambda d, x: d[:1], r"result: expected float32\[2, 3, 8\]"),
    ]:
        y = ops.custom(lambda x: 2 * x, backward, tape.Tensor(X, requires_grad=True))
        with pytest.raises(ValueError, match=rule):
            y.backward(np.ones(X.shape))


# ---------------------------------------------------------------- arbitrary arguments

DTYPES = (
    [np.float32] * 6 + [np.int32] * 3 + [np.float64, np.float16, np.int64, np.uint8, np.bool_, np.complex64]
)
SHAPES = st.one_of(
    st.sampled_from([(2, 3, 8), (2, 3), (8,), (8, 8), (5, 8), (2, 3, 2, 4), (2, 2, 6, 4)]),
    hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=9),
)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """Draw arrays of up to five axes with any memory layout; some values are small enough to be valid ids."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(SHAPES)
    seed = draw(st.integers(0, 5))
    array = (np.random.default_rng(seed).integers(-1, 6, shape) if seed else np.zeros(shape)).astype(dtype)
    if dtype == np.float32 and draw(st.booleans()):
        array = np.where(array > 3, np.float32(draw(st.sampled_from([np.nan, np.inf, -np.inf, 3e38]))), array)
    lay = draw(
        st.sampled_from(["as it is", "transposed", "reversed", "broadcast", "read-only", "sliced", "swapped"])
    )
    if lay == "transposed":
        array = array.T
    elif lay == "reversed":
        array = array[::-1] if array.ndim else array
    elif lay == "broadcast":
        array = np.broadcast_to(array[..., :1], array.shape) if array.ndim and array.size else array
    elif lay == "read-only":
        array.flags.writeable = False
    elif lay == "sliced" and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    elif lay == "swapped":
        array = array.astype(dtype.newbyteorder())
    return array


THINGS = st.one_of(
    arrays(), arrays(), arrays(), arrays(), st.none(), st.sampled_from([[[1.0], [2.0]], "x", 3, {}])
)
NUMBERS = st.one_of(
    st.integers(-3, 9),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.none(),
    st.sampled_from([1, 2, 2, 4, 1e-5, 1.0, np.int64(2), np.float32(0.5), (1,), "silu", "none", "relu"]),
)
SPECS = {spec.name: spec for spec in _core.op_specs()}


@pytest.mark.parametrize("op", SPECS)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_call_gives_a_value_or_a_clear_error(op: str, data: st.DataObject) -> None:
    spec = SPECS[op]
    declared = [*spec.inputs, *spec.repeated]
    backward = data.draw(st.booleans())
    inputs = data.draw(st.lists(THINGS, min_size=len(declared), max_size=len(declared)))
    if data.draw(st.booleans()):  # a nearly valid call: the right dtype for every array
        wanted = [np.int32 if one.index else np.float32 for one in declared]
        with np.errstate(all="ignore"):
            inputs = [
                np.abs(i).astype(w) if isinstance(i, np.ndarray) and i.dtype.kind in "fiu" else i
                for i, w in zip(inputs, wanted, strict=True)
            ]
    options = {
        o.name: data.draw(NUMBERS) for o in spec.options if o.name == "n_head" or data.draw(st.booleans())
    }
    for o in spec.options:
        if isinstance(options.get(o.name), int) and 4096 < options[o.name] <= o.high < math.inf:
            options[o.name] = 4096  # a table of gigabytes is valid too, but slow
    if backward:
        taken = [given for one, given in zip(declared, inputs, strict=True) if not one.state]
        inputs = [data.draw(THINGS), *taken]
    try:
        result = getattr(ops, f"{op}_backward" if backward else op)(*inputs, **options)
    except (TypeError, ValueError) as error:
        assert str(error)
        return
    for array in result if isinstance(result, tuple) else (result,):
        assert array is None or isinstance(array, np.ndarray)


# A valid call of each op; the test spoils one argument.
RIGHT = {case.op: case for case in reversed(cases())}


@pytest.mark.parametrize("op", RIGHT)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_wrong_argument_of_a_right_call(op: str, data: st.DataObject) -> None:
    inputs = RIGHT[op].inputs
    options = {name: value for name, value in RIGHT[op].options.items() if name != "dloss"}
    y = getattr(ops, op)(*inputs, **options)
    backward = data.draw(st.booleans())
    arguments = [gradient_of(op, y), *inputs] if backward else list(inputs)
    arguments[data.draw(st.integers(0, len(arguments) - 1))] = data.draw(arrays())
    try:
        getattr(ops, f"{op}_backward" if backward else op)(*arguments, **options)
    except (TypeError, ValueError) as error:
        assert str(error).startswith("["), error


def gradient_of(op: str, y: Any) -> Any:
    """Return ones for the outputs that have a gradient; None for a loss, whose gradient is 1."""
    outputs = SPECS[op].outputs
    if outputs[0].loss:
        return None
    if not isinstance(y, tuple):
        return np.ones_like(y)
    each = outputs * len(y) if outputs[0].repeated else outputs
    return tuple(np.ones_like(one) if out.has_gradient else None for one, out in zip(y, each, strict=False))


@pytest.mark.parametrize(
    "use",
    [
        lambda text: _core.Call(text, {}, [X], [False]),
        lambda text: _core.Call("add", {text: 1}, [X, X], [False, False]),
        lambda text: _core.Call("add", {}, [X, X], [False, False], compute=text),
        lambda text: _core.ParamStore().view(0, text),
        lambda text: _core.learning_rate(text, 1, peak=1.0, steps=2),
        lambda text: _core.read_file(text, 10),
        lambda text: _core.list_folder(text),
        lambda text: _core.verify_file("/", 0, 0, [(text, 0, 0, [])]),
    ],
)
def test_half_of_a_surrogate_pair_is_a_value_error(use: Any) -> None:
    with pytest.raises(ValueError, match=r"UTF-8.*'a\\ud800'"):
        use("a\ud800")
