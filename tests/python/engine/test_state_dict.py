"""The weights of a model as read-only views and as loaded values; a model of a whole config."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import mudd_core as mc
from mudd_core.graph.recording import Immediate, running, taped

SHAPE = mc.TransformerPPConfig(vocab_size=8, max_seq_len=8, d_model=4, n_layer=1, n_head=2, d_ff=6)
BATCH = {"inputs": [[1, 2, 3]], "targets": [[2, 3, 4]]}


def aliases(model: mc.Model, trainer: mc.Trainer) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield every array of weights that the package returns."""
    parts = {part.name: part.array for part in trainer.engine.state_parts() if "/" not in part.name}
    settings, exported = mc.interop.export_original("hf", model)
    original = mc.interop.load_original("hf", settings, exported)
    scope = Immediate(model.store)
    with running(scope):
        tape = {"embed": taped(mc.nn.parameter("embed", (8, 4))).numpy()}
    for place, arrays in (
        ("parameters", model.parameters),
        ("state_dict", model.state_dict()),
        ("state_parts", parts),
        ("export", exported),
        ("original", original.original_weights()),
        ("tape", tape),
    ):
        for name, array in arrays.items():
            yield f"{place} {name}", array


@pytest.mark.parametrize("stored", [{}, {"embed": "bfloat16", "head": "float16"}])
def test_no_writable_alias_of_a_weight_leaves_the_package(stored: dict[str, str]) -> None:
    config = mc.load_config("tiny.py", {"train.batch_size": 1, "train.seq_len": 3, "model": vars(SHAPE)})
    config = config.replace("train.trainable", ",".join(f"!{name}" for name in stored))
    model = mc.Model(SHAPE, stored=stored)
    with mc.Trainer(config, model=model) as trainer:
        before, places = trainer.final_hash(), set()
        for place, array in aliases(model, trainer):
            places.add(place.partition(" ")[0])
            with contextlib.suppress(ValueError):  # a view of a weight stays read-only
                array.flags.writeable = True
            if array.flags.writeable:  # a copy
                array.reshape(-1).view(np.uint8)[...] = 1
        assert not any(part.array.flags.writeable for part in trainer.engine.state_parts())
        assert len(places) == 6 and trainer.final_hash() == before


def test_views_follow_the_model_and_copies_do_not() -> None:
    model = mc.Model(SHAPE)
    views, copies = model.state_dict(), model.state_dict(copy=True)
    assert list(views) == list(copies) == list(model.parameters)
    copies["embed"][...] = 7
    assert model.parameters["embed"].max() < 7
    model.load_state_dict(copies)
    assert (views["embed"] == 7).all()
    copies["embed"][...] = 8
    assert (model.parameters["embed"] == 7).all()


def test_a_state_dict_gives_another_model_the_same_bits() -> None:
    one, other = mc.Model(SHAPE, seed=1), mc.Model(SHAPE, seed=2)
    ids = np.arange(6, dtype=np.int32)
    assert not np.array_equal(one(ids), other(ids))
    other.load_state_dict(one.state_dict())
    assert np.array_equal(one(ids), other(ids)) and np.array_equal(other(ids), other.logits(ids))


def test_a_wrong_state_dict_is_one_message_and_writes_nothing() -> None:
    model = mc.Model(SHAPE)
    before = model.state_dict(copy=True)
    state = model.state_dict(copy=True)
    state["embed"] = np.zeros((4, 8), np.float32)
    state["haed"] = state.pop("head")
    state["final_norm.gain"] = np.full(4, 9, np.float32)
    says = "'head' is missing; there is no 'haed'; did you mean 'head'?; 'embed': expected shape (8, 4), got (4, 8)"
    with pytest.raises(ValueError, match=re.escape(says)):
        model.load_state_dict(state)
    with pytest.raises(TypeError, match="expected numbers as float32"):
        model.load_state_dict(before | {"embed": np.zeros((8, 4), np.complex64)})
    with pytest.raises(TypeError, match="expected a dict of arrays"):
        model.load_state_dict([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"is missing; .*; and \d+ more"):
        model.load_state_dict({})
    assert all(np.array_equal(before[name], model.parameters[name]) for name in before)


def test_16_bit_weights_round_with_a_warning_and_refuse_infinity_before_they_write() -> None:
    model = mc.Model(SHAPE, stored={"embed": "float16"})
    state = model.state_dict(copy=True)
    state["embed"][...] = 1 + 2**-20
    with pytest.warns(
        UserWarning, match=r"\[load_state_dict\] embed: 32 of 32 values were rounded to float16"
    ):
        model.load_state_dict(state)
    last = mc.Model(SHAPE, stored={"head": "float16"})
    state["embed"][...], state["head"][...] = 3, 1e6
    with pytest.raises(ValueError, match="expected weights that float16 can hold"):
        last.load_state_dict(state)
    assert not (last.parameters["embed"] == 3).any()


def test_a_model_of_a_whole_config_has_the_bits_of_its_trainers() -> None:
    config = mc.load_config("tiny.py", {"train.seed": 5, "train.seq_len": 16, "model.n_layer": 1})
    model = mc.Model(config)
    assert (model.config.vocab_size, model.config.max_seq_len, model.precision) == (2048, 16, "fp32")
    same = mc.Model(model.config, seed=5)
    assert all(np.array_equal(same.parameters[name], view) for name, view in model.parameters.items())
    assert mc.Model(config.replace("train.precision", "bf16")).precision == "bf16"
    assert mc.Model(config, seed=6, precision="bf16").precision == "bf16"
