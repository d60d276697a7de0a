"""mc.first_difference: the first value at which two models, precisions or programs differ."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import LoraConfig
from mudd_core.fingerprint.alone import first_alone
from mudd_core.fingerprint.observed import Observed
from small_models import make_batch

CONFIG = mc.TransformerPPConfig(vocab_size=61, max_seq_len=16, d_model=32, n_layer=2, n_head=2)
BATCH = make_batch(61, 3, 8)


@pytest.fixture(scope="module")
def model() -> mc.Model:
    return mc.Model(CONFIG, seed=1)


def changed(model: mc.Model, name: str, at: tuple[int, ...]) -> mc.Model:
    """Return a copy of a model with the next larger number in one weight."""
    twin = copy.deepcopy(model)
    weight = np.array(twin.parameters[name])
    weight[at] = np.nextafter(weight[at], np.float32(9))
    twin.set_parameter(name, weight)
    return twin


@pytest.mark.parametrize("batch", [BATCH, BATCH["inputs"]], ids=["trains", "forward"])
def test_equal_models_have_no_difference(model: mc.Model, batch: Any) -> None:
    assert mc.first_difference(model, copy.deepcopy(model), batch) is None
    assert mc.first_difference(model, copy.deepcopy(model), batch, ulp=64) is None


def test_of_two_weights_the_weight_is_named_with_its_size(model: mc.Model) -> None:
    found = mc.first_difference(model, changed(model, "blocks.1.ffn.up.w", (3, 5)), BATCH)
    assert found is not None and (found.place, found.stage, found.value) == (
        "blocks.1.ffn.up.w",
        "state",
        "weight",
    )
    assert (found.count, found.first_index, found.ulps) == (1, (3, 5), 1.0)
    lines = repr(found).splitlines()
    assert lines[0] == "first difference: the weight blocks.1.ffn.up.w"
    assert lines[2].split() == ["elements", "1", "of", f"{found.size:,}", "differ"]
    assert lines[4].split() == ["largest", "1", "unit", "of", "the", "last", "place"]
    other = mc.first_difference(model, mc.Model(CONFIG, seed=2), BATCH)
    assert (
        other is not None and (other.place, other.count) == ("embed", other.size) and other.loss_growth > 1e-4
    )


def test_two_precisions_are_matched_by_place(model: mc.Model) -> None:
    half = mc.Model(CONFIG, seed=1, precision="bf16")
    found = mc.first_difference(model, half, BATCH)
    assert found is not None and found.stage == "forward" and "norm" in found.place
    assert found.dtype == "float32 and bfloat16" and found.ulps <= 0.5
    later = mc.first_difference(model, half, BATCH, ulp=1)
    assert later is not None and later.ulps > 1 and later.place != found.place
    assert mc.first_difference(model, half, BATCH, ulp=1e6) is None


def test_an_ulp_above_the_difference_finds_nothing(model: mc.Model) -> None:
    near = changed(model, "final_norm.gain", (0,))
    found = mc.first_difference(model, near, BATCH)
    assert found is not None and found.place == "final_norm.gain"
    assert mc.first_difference(model, near, BATCH["inputs"], ulp=64) is None


def test_adapters_that_one_model_lacks_are_named(model: mc.Model) -> None:
    adapted = mc.Model(CONFIG, seed=1, lora=LoraConfig(rank=2))
    for ulp in (0, 64):
        found = mc.first_difference(adapted, model, BATCH, ulp=ulp)
        assert found is not None and (found.place, found.only_in) == ("blocks.0.attn.q.lora_a", "a")
        assert (
            repr(found).splitlines()[0]
            == "first difference: the weight blocks.0.attn.q.lora_a, which only a has"
        )
        found = mc.first_difference(model, adapted, BATCH["inputs"], ulp=ulp)
        assert found is not None and (found.place, found.only_in) == ("blocks.0.attn.q.lora_a", "b")
    # A weight before it that differs comes first.
    found = mc.first_difference(adapted, changed(model, "embed", (0, 0)), BATCH)
    assert found is not None and (found.place, found.only_in) == ("embed", "")


def test_a_weight_of_another_shape_or_a_further_block_is_named(model: mc.Model) -> None:
    wide = mc.Model(dataclasses.replace(CONFIG, d_ff=96), seed=1)
    narrow = mc.Model(dataclasses.replace(CONFIG, d_ff=64), seed=1)
    found = mc.first_difference(wide, narrow, BATCH)
    title = "the weight blocks.0.ffn.gate.w, float32 [32, 96] in a; b has float32 [32, 64] there"
    assert found is not None and found.title == title
    half = mc.Model(dataclasses.replace(CONFIG, d_model=64), seed=1, precision="bf16")
    found = mc.first_difference(model, half, BATCH, ulp=64)
    assert (
        found is not None
        and found.title == "the weight embed, float32 [61, 32] in a; b has float32 [61, 64] there"
    )
    deep = mc.Model(dataclasses.replace(CONFIG, n_layer=3), seed=1)
    found = mc.first_difference(model, deep, BATCH)
    assert found is not None and (found.place, found.only_in) == ("blocks.2.attn.norm.gain", "b")


def test_a_weight_of_another_type_is_compared_by_value() -> None:
    stored = mc.Model(CONFIG, seed=1, stored={"blocks.1.attn.q.w": "bfloat16"})
    found = mc.first_difference(mc.Model(CONFIG, seed=1), stored, BATCH)
    assert found is not None and (found.place, found.dtype) == ("blocks.1.attn.q.w", "float32 and bfloat16")


def test_an_op_that_one_model_lacks_is_named(model: mc.Model) -> None:
    lines = Observed(model, BATCH).lines()
    at = next(at for at, line in enumerate(lines) if line.key.place == "blocks.1.attn.q:linear")
    other = dataclasses.replace(
        lines[at], op="lora", key=lines[at].key._replace(place="blocks.1.attn.q:lora")
    )
    found = first_alone((*lines[:at], other, *lines[at + 1 :]), lines)
    assert found is not None and found.common == at
    title = "lora (forward) in blocks.1.attn.q: output 0, float32 [3, 8, 32] in a; b has linear there"
    assert found.difference((1.0, 1.0)).title == title
    found = first_alone(lines[:at], lines)
    assert found is not None and (found.common, found.only_in) == (at, "b")
    assert first_alone(lines, lines) is None


def test_models_of_two_families_are_compared_by_a_table_of_names(model: mc.Model) -> None:
    sizes = mc.GPT2Config(vocab_size=61, max_seq_len=16, d_model=32, n_layer=2, n_head=2)
    other = mc.Model(sizes, seed=1)
    with pytest.raises(UserError, match=r"of the family transformer_pp as a, got gpt2; .* names=\{"):
        mc.first_difference(model, other, BATCH)
    arrays = dict(other.capture(BATCH, ["blocks.0.attn.out"], gradients=False))
    found = mc.first_difference(model, arrays, BATCH, names={"blocks.0.attn.out": "blocks.0.attn.out"})
    assert found is not None and found.place == "blocks.0.attn.out"


def test_arrays_of_another_program_by_a_table_of_names(model: mc.Model) -> None:
    chosen = ["blocks.*.out", "blocks.1.ffn.up.w"]
    values = model.capture(BATCH, chosen, gradients=True)
    theirs = {
        "layer0/attn": values["blocks.0.attn.out"].astype(np.float64),
        "layer1/mlp": values["blocks.1.ffn.out"].copy(),
        "layer1/up": values.gradients["blocks.1.ffn.up.w"],
        "not in the table": np.zeros(3),
    }
    names = {
        "layer0/attn": "blocks.0.attn.out",
        "layer1/mlp": "blocks.1.ffn.out",
        "layer1/up": "gradient of blocks.1.ffn.up.w",
    }
    assert mc.first_difference(model, theirs, BATCH, names=names) is None
    theirs["layer1/up"] = theirs["layer1/up"] * 1.5
    found = mc.first_difference(model, theirs, BATCH, names=names, ulp=64)
    assert found is not None and found.stage == "backward"
    theirs["layer1/mlp"][1, 2, 3] += 0.25
    found = mc.first_difference(model, theirs, BATCH, names=names, ulp=64)
    assert found is not None and (found.count, found.first_index) == (1, (1, 2, 3))
    assert repr(found).startswith("first difference: blocks.1.ffn.out (layer1/mlp)\n")


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        ({"blocks.0.atn.out": [1.0]}, {}, r"names of the model, got 'blocks.0.atn.out'; did you mean"),
        ({"x": [1.0]}, {"names": {"y": "embed"}}, r"names: expected names of b, got 'y'"),
        (
            {"embed": np.zeros((3, 3))},
            {},
            r"embed: expected numbers of shape \(61, 32\) .*; transpose or reshape",
        ),
        ({}, {}, "at least one array"),
    ],
)
def test_wrong_arrays_are_refused(model: mc.Model, other: Any, options: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        mc.first_difference(model, other, BATCH, **options)


def test_wrong_arguments_are_refused(model: mc.Model) -> None:
    with pytest.raises(ValueError, match="ulp: expected a finite number from 0 on, got -1"):
        mc.first_difference(model, model, BATCH, ulp=-1)
    with pytest.raises(TypeError, match=r"b: expected an mc\.Model or a dict of arrays, got int"):
        mc.first_difference(model, 3, BATCH)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="names: expected none for two models"):
        mc.first_difference(model, model, BATCH, names={})


def test_two_levels_in_one_call(model: mc.Model) -> None:
    levels = ("portable", "avx2")
    assert mc.first_difference(model, model, BATCH, levels=levels) is None
    half = mc.Model(CONFIG, seed=1, precision="bf16")
    found = mc.first_difference(model, half, BATCH, ulp=1, levels=levels)
    here = mc.first_difference(model, half, BATCH, ulp=1)
    assert found is not None and here is not None
    assert (found.title, found.count, found.values) == (here.title, here.count, here.values)
    assert found.losses[0] == here.losses[0]
    found = mc.first_difference(model, changed(model, "embed", (2, 3)), BATCH["inputs"], levels=levels)
    assert found is not None and (found.place, found.first_index) == ("embed", (2, 3))


@pytest.mark.parametrize("levels", ["avx2", ("avx2",), ("avx2", "avx9"), ("portable", "avx2", "avx2")])
def test_other_levels_are_refused(model: mc.Model, levels: Any) -> None:
    with pytest.raises(UserError, match="levels: expected two levels of this CPU, of portable, avx2"):
        mc.first_difference(model, model, BATCH, levels=levels)
    with pytest.raises(ValueError, match="expected two models, got a dict of arrays"):
        mc.first_difference(model, {"embed": np.zeros((61, 32))}, BATCH, levels=("avx2", "portable"))


def test_a_process_that_fails_is_named(model: mc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudd_core.fingerprint.levels.MODEL", "other")
    with pytest.raises(UserError, match=r"the process of level portable ended with code 1: .*model"):
        mc.first_difference(model, model, BATCH, levels=("portable", "avx2"))
