"""The signatures and help of mudd_core.ops match the declarations of the core."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from mudd_core import _core, ops

SPECS = {spec.name: spec for spec in _core.op_specs()}
X = np.ones((2, 3, 8), np.float32)


def test_every_function_says_what_its_op_declares() -> None:
    for name, spec in SPECS.items():
        assert spec.help, f"{name}: the OpSpec has no help (formula and shapes of inputs)"
        assert (inspect.getdoc(getattr(ops, name)) or "").startswith(spec.help)
        assert (inspect.getdoc(getattr(ops, f"{name}_backward")) or "").endswith(spec.backward_help)
    for name in ops.__all__:
        assert inspect.getdoc(getattr(ops, name)), name


@pytest.mark.parametrize("op", SPECS)
def test_signatures_name_all_inputs_and_options(op: str) -> None:
    spec = SPECS[op]
    parameters = inspect.signature(getattr(ops, op)).parameters
    options = {n: p for n, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert list(parameters)[: len(spec.inputs)] == [one.name for one in spec.inputs]
    assert list(options) == [option.name for option in spec.options]
    for one in spec.inputs:
        assert parameters[one.name].default is (None if one.optional else inspect.Parameter.empty), one.name
    several = [name for name, p in parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL]
    assert len(several) == bool(spec.repeated)
    for option in spec.options:
        assert options[option.name].default == option.default
        assert options[option.name].annotation is type(option.default)
        assert f"{option.name}: {option.help}" in getattr(ops, op).__doc__
    back = list(inspect.signature(getattr(ops, f"{op}_backward")).parameters)
    assert back[0] == f"d{spec.outputs[0].name}"
    assert set(back[1:]) == parameters.keys() - {one.name for one in spec.inputs if one.state}


@pytest.mark.parametrize("name", [name for name in ops.__all__ if name != "custom"])
def test_a_function_says_where_it_is(name: str) -> None:
    function = getattr(ops, name)
    assert (function.__module__, function.__name__, function.__qualname__) == ("mudd_core.ops", name, name)


def test_help_has_the_values_of_options_and_the_gradients() -> None:
    assert ops.linear.__doc__.endswith(
        "Options:\n"
        "    activation: function of x w + bias. Values: none, silu, gelu_tanh, gelu_erf, relu, squared_relu.\n"
        "    transposed: w is [N, K].\n"
        "    full_precision: y stays fp32 in a bf16 graph, as with a residual."
    )
    assert "each normalized alone. Values: at least 1.\n" in ops.rms_norm.__doc__
    assert "purpose: " in ops.dropout.__doc__ and "Values: a str" not in ops.dropout.__doc__
    assert ops.activation_backward.__doc__ == "Gradients (dx,) of activation; None for absent inputs."
    assert ops.embedding_backward.__doc__ == (
        "Gradients (None, dtable, dresidual) of embedding; None for absent inputs."
    )
    assert "dnewest, one for each of states) of depth_mix" in ops.depth_mix_backward.__doc__


def test_inputs_and_gradients_may_be_named() -> None:
    gain = np.full(8, 2, np.float32)
    assert np.array_equal(ops.rms_norm(gain=gain, x=X), ops.rms_norm(X, gain))
    for one, other in zip(
        ops.rms_norm_backward(gain=gain, x=X, dy=X), ops.rms_norm_backward(X, X, gain), strict=True
    ):
        assert np.array_equal(one, other)


def test_wrong_arguments_are_type_errors() -> None:
    for wrong, text in [
        (lambda: ops.rms_norm(), r"\[rms_norm\] x: expected an array, got nothing"),
        (lambda: ops.rms_norm(None), r"\[rms_norm\] x: expected an array, got None"),
        (lambda: ops.add(X, None), r"\[add\] b: expected an array, got None"),
        (lambda: ops.rms_norm_backward(), r"\[rms_norm\] dy: expected an array, got nothing"),
        (lambda: ops.rms_norm(X, X[0, 0], X), r"\[rms_norm\] expected at most 2 inputs, got 3"),
        (lambda: ops.rms_norm(X, x=X), r"\[rms_norm\] unexpected argument 'x'"),
        (
            lambda: ops.rms_norm(X, eps=1e-6, epsilon=1),
            r"unexpected argument 'epsilon'; options: eps, gain_offset, heads",
        ),
    ]:
        with pytest.raises(TypeError, match=text):
            wrong()


def test_an_output_without_a_gradient_takes_none() -> None:
    h, head, targets = X, np.ones((5, 8), np.float32), np.zeros((2, 3), np.int32)
    with pytest.raises(TypeError, match=r"\[cross_entropy\] dcounted: expected None"):
        ops.cross_entropy_backward((np.ones(1), np.ones(1)), h, head, targets)
    alone = ops.cross_entropy_backward(np.ones(1), h, head, targets)
    assert np.array_equal(alone[0], ops.cross_entropy_backward(([1.0], None), h, head, targets)[0])
    assert np.array_equal(alone[0], ops.cross_entropy_backward((np.ones(1), None), h, head, targets)[0])
