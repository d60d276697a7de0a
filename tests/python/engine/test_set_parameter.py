"""Weights and sampling values that a notebook passes to a model, and the names of the gradients of both executors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.engine import losses
from small_models import make_batch

SHAPE = mc.TransformerPPConfig(vocab_size=8, max_seq_len=8, d_model=4, n_layer=1, n_head=2, d_ff=4)


def test_lists_and_whole_numbers_are_weights() -> None:
    model = mc.Model(SHAPE)
    model.set_parameter("final_norm.gain", [1, 2, 3, 4.5])
    assert model.parameters["final_norm.gain"].tolist() == [1, 2, 3, 4.5]


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ([[1.0]], ValueError, r"\[model\] embed: expected shape \(8, 4\), got \(1, 1\)"),
        ([[1.0], [1.0, 2.0]], ValueError, r"\[model\] embed: expected an array of shape \(8, 4\)"),
        ("abc", TypeError, r"\[model\] embed: expected numbers"),
        (1.0, ValueError, r"\[model\] embed: expected shape \(8, 4\), got \(\)"),
    ],
)
def test_what_is_no_such_weight_is_refused_by_name(value: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        mc.Model(SHAPE).set_parameter("embed", value)
    with pytest.raises(KeyError, match="there is no 'nothing'"):
        mc.Model(SHAPE).set_parameter("nothing", [1.0])


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"temperature": -1}, ValueError, r"\[generate\] temperature: expected at least 0 .*, got -1"),
        ({"temperature": float("nan")}, ValueError, r"\[generate\] temperature: .*, got nan"),
        ({"temperature": "hot"}, TypeError, r"\[generate\] temperature: expected a number, got 'hot'"),
        ({"top_p": 0}, ValueError, r"\[generate\] top_p: expected more than 0 and at most 1, got 0"),
        ({"top_k": -1}, ValueError, r"\[generate\] top_k: expected at least 0, got -1"),
        ({"top_k": 1.5}, TypeError, r"\[generate\] top_k: expected a whole number, got 1\.5"),
        ({"max_tokens": -1}, ValueError, r"\[generate\] max_tokens: expected at least 0, got -1"),
        (
            {"top_k": 2**63},
            ValueError,
            r"\[generate\] top_k: expected less than 2\*\*63, got 9223372036854775808",
        ),
        ({"max_tokens": 2**63}, ValueError, r"\[generate\] max_tokens: expected less than 2\*\*63, got"),
        ({"seed": -1}, ValueError, r"\[generate\] seed: expected at least 0, got -1"),
        (
            {"seed": 2**64},
            ValueError,
            r"\[generate\] seed: expected less than 2\*\*64, got 18446744073709551616",
        ),
        ({"seed": 1.5}, TypeError, r"\[generate\] seed: expected a whole number, got 1\.5"),
    ],
)
def test_an_impossible_value_of_sampling_is_named(
    values: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        mc.Model(SHAPE).generate([1, 2], **values)


@pytest.mark.parametrize("value", [{"seed": 2**64 - 1}, {"top_k": 2**63 - 1}])
def test_the_largest_values_of_sampling_are_taken(value: dict[str, Any]) -> None:
    tokens = mc.Model(SHAPE).generate([1, 2], max_tokens=2, temperature=1.0, **value)
    assert len(list(tokens)) == 2


def test_numbers_of_numpy_are_values_of_sampling() -> None:
    values: dict[str, Any] = {"temperature": np.float32(0.5), "top_p": np.float64(1), "top_k": np.int64(2)}
    assert len(list(mc.Model(SHAPE).generate([1, 2], max_tokens=3, **values))) == 3


def test_a_parameter_without_a_gradient_on_the_tape_is_reported_as_zeros(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = mc.Model(SHAPE), make_batch(8, 2, 8)
    _, planned = model.loss_and_gradients(batch)
    whole = losses.sums_and_gradients

    def without_gain(*arguments: Any) -> Any:
        loss, count, gradients = whole(*arguments)
        gradients.pop("final_norm.gain")
        return loss, count, gradients

    monkeypatch.setattr(losses, "sums_and_gradients", without_gain)
    _, found = model.loss_and_gradients_immediate(batch)
    assert found.keys() == planned.keys() and not found["final_norm.gain"].any()
    assert np.array_equal(found["embed"], planned["embed"])
