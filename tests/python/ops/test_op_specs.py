"""The declarations of the ops check inputs and options, with one message format for every op."""

from __future__ import annotations

import numpy as np
import pytest

from mudd_core import _core, ops
from mudd_core.base.types import Array
from option_cases import Value, of_another_type, out_of_bounds

SPECS = {spec.name: spec for spec in _core.op_specs()}
OPTIONS = [(spec.name, option) for spec in SPECS.values() for option in spec.options]
IDS = [f"{op}-{option.name}" for op, option in OPTIONS]
# Each input by its position, including one of each repeated group.
INPUTS = [
    (spec.name, place) for spec in SPECS.values() for place in range(len(spec.inputs) + len(spec.repeated))
]


def refused(op: str, options: dict[str, Value], error: type[Exception], text: str) -> None:
    """Check that a call with these options and no inputs fails before it reads the inputs."""
    with pytest.raises(error) as caught:
        _core.Call(op, options, [], [])
    assert type(caught.value) is error
    assert text in str(caught.value)


def declared(op: str) -> list[_core.OpInput]:
    """Return all inputs; repeated ones occur once."""
    return [*SPECS[op].inputs, *SPECS[op].repeated]


def array_of(one: _core.OpInput) -> Array:
    return np.zeros((2, 2), np.int32 if one.index else np.float32)


def wrong_call(text: str, function: str, *arguments: Array | None, **named: object) -> None:
    """Check that the function of this name raises TypeError with this message."""
    with pytest.raises(TypeError) as caught:
        getattr(ops, function)(*arguments, **named)
    assert str(caught.value) == text


@pytest.mark.parametrize(("op", "place"), INPUTS)
def test_an_input_of_another_dtype_names_op_and_input(op: str, place: int) -> None:
    inputs = declared(op)
    one, wanted = inputs[place], array_of(inputs[place]).dtype
    for dtype in (np.float64, np.int64, np.float32 if one.index else np.int32):
        given = [array_of(other) for other in inputs]
        given[place] = given[place].astype(dtype)
        cast = f"{one.name}.astype(np.{wanted})"
        text = f"[{op}] {one.name}: expected {wanted}, got {np.dtype(dtype)}; pass {cast}"
        wrong_call(text, op, *given)
        if not one.state:
            taken = [array for other, array in zip(inputs, given, strict=True) if not other.state]
            gradient = np.zeros((2, 2), SPECS[op].outputs[0].dtype)
            wrong_call(text, f"{op}_backward", gradient, *taken)


@pytest.mark.parametrize("op", SPECS)
def test_a_required_input_that_is_missing_is_named(op: str) -> None:
    required = [one for one in SPECS[op].inputs if not one.optional]
    for left_out in required:
        given = {one.name: array_of(one) for one in required if one is not left_out}
        wrong_call(f"[{op}] {left_out.name}: expected an array, got nothing", op, **given)
        given[left_out.name] = None
        wrong_call(f"[{op}] {left_out.name}: expected an array, got None", op, **given)


@pytest.mark.parametrize("op", SPECS)
def test_more_inputs_than_declared_are_counted(op: str) -> None:
    spec = SPECS[op]
    given = [array_of(one) for one in spec.inputs]
    if not spec.repeated:
        count = len(given)
        wrong_call(f"[{op}] expected at most {count} inputs, got {count + 1}", op, *given, given[0])


@pytest.mark.parametrize("op", SPECS)
def test_a_gradient_of_another_dtype_names_op_and_output(op: str) -> None:
    inputs = [array_of(one) for one in declared(op) if not one.state]
    first = SPECS[op].outputs[0]
    wrong_call(
        f"[{op}] d{first.name}: expected {first.dtype}, got int32; pass d{first.name}.astype(np.{first.dtype})",
        f"{op}_backward",
        np.zeros(2, np.int32),
        *inputs,
    )
    if not first.loss:
        wrong_call(f"[{op}] d{first.name}: expected an array, got None", f"{op}_backward", None, *inputs)


@pytest.mark.parametrize(("op", "option"), OPTIONS, ids=IDS)
def test_a_value_of_another_type_names_op_and_option(op: str, option: _core.Option) -> None:
    for value, rule in of_another_type(option):
        refused(op, {option.name: value}, TypeError, f"[{op}] {option.name}: {rule}")


@pytest.mark.parametrize(("op", "option"), OPTIONS, ids=IDS)
def test_a_value_out_of_bounds_names_what_is_allowed(op: str, option: _core.Option) -> None:
    for value in out_of_bounds(option):
        refused(
            op, {option.name: value}, ValueError, f"[{op}] {option.name}: expected {option.expected}, got "
        )


@pytest.mark.parametrize("op", SPECS)
def test_an_unknown_option_lists_the_known_ones(op: str) -> None:
    names = [option.name for option in SPECS[op].options]
    text = f"[{op}] option 'epsilon' is unknown; known: {', '.join(names)}"
    refused(op, {"epsilon": 1}, ValueError, text)
    inputs = [array_of(one) for one in SPECS[op].inputs]
    text = f"[{op}] unexpected argument 'epsilon'; options: {', '.join(sorted(names))}"
    wrong_call(text, op, *inputs, epsilon=1)


@pytest.mark.parametrize(("op", "option"), OPTIONS, ids=IDS)
def test_a_default_is_allowed_and_explained(op: str, option: _core.Option) -> None:
    assert len(option.help.split()) >= 2
    assert not option.choices or option.default in option.choices
    refused(op, {option.name: option.default, "zzz": 1}, ValueError, "'zzz' is unknown")
