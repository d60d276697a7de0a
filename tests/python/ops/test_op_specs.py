"""What the declarations of the ops promise: each option checked by its type, bounds and choices, for every op."""

from __future__ import annotations

import pytest

from mudd_core import _core

SPECS = {spec.name: spec for spec in _core.op_specs()}
OPTIONS = [(spec.name, option) for spec in SPECS.values() for option in spec.options]
IDS = [f"{op}-{option.name}" for op, option in OPTIONS]


def refused(op: str, options: dict[str, bool | int | float | str], error: type[Exception], text: str) -> None:
    """A call with these options and no inputs fails before the inputs are looked at."""
    with pytest.raises(error) as caught:
        _core.Call(op, options, [], [])
    assert type(caught.value) is error
    assert text in str(caught.value)


@pytest.mark.parametrize(("op", "option"), OPTIONS, ids=IDS)
def test_a_value_of_another_type_names_op_and_option(op: str, option: _core.Option) -> None:
    names = {bool: "a bool", str: "a str", int: "an int", float: "a number"}
    for wrong in (True, "x", 0.5):
        kind = type(option.default)
        if type(wrong) is not kind:
            refused(op, {option.name: wrong}, TypeError, f"[{op}] {option.name}: expected {names[kind]}")


@pytest.mark.parametrize(("op", "option"), OPTIONS, ids=IDS)
def test_a_value_out_of_bounds_names_what_is_allowed(op: str, option: _core.Option) -> None:
    if isinstance(option.default, str):
        wrong = "no such word"
        allowed = f"{option.choices[-1]}, got 'no such word'" if option.choices else None
    elif isinstance(option.default, bool):
        allowed = None
    elif isinstance(option.default, float):
        wrong, allowed = float("nan"), f"[{op}] {option.name}: expected {option.expected}"
    else:
        wrong, allowed = -(2**62), f"[{op}] {option.name}: expected {option.expected}"
    if allowed is not None and option.expected != "an int":
        refused(op, {option.name: wrong}, ValueError, allowed)


@pytest.mark.parametrize("op", SPECS)
def test_an_unknown_option_lists_the_known_ones(op: str) -> None:
    known = ", ".join(option.name for option in SPECS[op].options)
    refused(op, {"epsilon": 1}, ValueError, f"[{op}] option 'epsilon' is unknown; known: {known}")


@pytest.mark.parametrize(("op", "option"), OPTIONS, ids=IDS)
def test_a_default_is_allowed_and_explained(op: str, option: _core.Option) -> None:
    assert len(option.help.split()) >= 2
    assert not option.choices or option.default in option.choices
    refused(op, {option.name: option.default, "zzz": 1}, ValueError, "'zzz' is unknown")
