"""Weights given to a model in a notebook, and the names of the gradients of both executors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.engine import immediate
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


def test_a_parameter_without_a_gradient_on_the_tape_is_reported_as_zeros(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = mc.Model(SHAPE), make_batch(8, 2, 8)
    _, planned = model.loss_and_gradients(batch)
    whole = immediate.sums_and_gradients

    def without_gain(*arguments: Any) -> Any:
        loss, count, gradients = whole(*arguments)
        gradients.pop("final_norm.gain")
        return loss, count, gradients

    monkeypatch.setattr(immediate, "sums_and_gradients", without_gain)
    _, found = model.loss_and_gradients_immediate(batch)
    assert found.keys() == planned.keys() and not found["final_norm.gain"].any()
    assert np.array_equal(found["embed"], planned["embed"])
