"""The declarations of the optimizers check settings, with the same message format as the options of ops."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from mudd_core import _core
from mudd_core.config import OptimConfig
from option_cases import Value, of_another_type, out_of_bounds

SPECS = {spec.name: spec for spec in _core.optimizer_specs()}
SETTINGS = [(spec.name, setting) for spec in SPECS.values() for setting in spec.settings]
IDS = [f"{optimizer}-{setting.name}" for optimizer, setting in SETTINGS]
FIELDS = {field.name: field for field in fields(OptimConfig)}


def refused(optimizer: str, settings: dict[str, Value], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        _core.UpdateGroup(optimizer=optimizer, settings=settings, weight_decay=0.1)
    assert type(caught.value) is error
    assert text in str(caught.value)


@pytest.mark.parametrize(("optimizer", "setting"), SETTINGS, ids=IDS)
def test_a_value_of_another_type_names_optimizer_and_setting(
    optimizer: str, setting: _core.OptimizerSetting
) -> None:
    for value, rule in of_another_type(setting):
        refused(optimizer, {setting.name: value}, TypeError, f"[{optimizer}] {setting.name}: {rule}")


@pytest.mark.parametrize(("optimizer", "setting"), SETTINGS, ids=IDS)
def test_a_value_out_of_bounds_names_what_is_allowed(optimizer: str, setting: _core.OptimizerSetting) -> None:
    for value in out_of_bounds(setting):
        text = f"[{optimizer}] {setting.name}: expected {setting.expected}, got "
        refused(optimizer, {setting.name: value}, ValueError, text)


@pytest.mark.parametrize("optimizer", SPECS)
def test_an_unknown_setting_lists_the_known_ones(optimizer: str) -> None:
    known = ", ".join(setting.name for setting in SPECS[optimizer].settings)
    text = f"[{optimizer}] option 'epsilon' is unknown; known: {known}"
    refused(optimizer, {"epsilon": 1}, ValueError, text)


@pytest.mark.parametrize(("optimizer", "setting"), SETTINGS, ids=IDS)
def test_the_field_of_a_setting_has_its_default_bounds_and_help(
    optimizer: str, setting: _core.OptimizerSetting
) -> None:
    field = FIELDS[setting.field]
    numeric = not isinstance(setting.default, bool | str)
    assert (field.default, type(field.default)) == (setting.default, type(setting.default))
    assert field.metadata["low"] == (setting.low if numeric and math.isfinite(setting.low) else None)
    assert field.metadata["high"] == (setting.high if numeric and math.isfinite(setting.high) else None)
    assert (field.metadata["unit"], field.metadata["choices"]) == (setting.unit, tuple(setting.choices))
    assert f"{optimizer}: {setting.help}" in field.metadata["text"]


@pytest.mark.parametrize("optimizer", SPECS)
def test_the_choice_of_an_optimizer_is_explained(optimizer: str) -> None:
    name = FIELDS["name"]
    assert {optimizer, *SPECS[optimizer].aliases} <= set(name.metadata["choices"])
    assert f"{optimizer}: {SPECS[optimizer].help}" in name.metadata["text"]
    assert len(SPECS[optimizer].help.split()) >= 2
