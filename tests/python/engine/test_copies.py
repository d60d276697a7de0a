"""copy.deepcopy(model) is an independent model with the same bits; pickle is refused with the way out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import mudd_core as mc
from mudd_core.engine.model import Model

PICKLED = methodcaller("__reduce_ex__", 4)  # the call with which pickle.dumps starts
IDS = np.arange(24, dtype=np.int32).reshape(2, 12)
SIZES = ["model.vocab_size=64", "model.max_seq_len=16", "train.seq_len=16"]


def models() -> list[Model]:
    """Return a plain model, one in bf16, one with frozen weights in 16 bits, and one with adapters."""
    config = mc.load_config("tiny.py", SIZES).model
    names = [name for name in mc.Model(config).parameters if name.startswith("blocks.0.")]
    matrices = [name for name in names if name.endswith(".w")]
    found = [
        mc.Model(config, seed=3),
        mc.Model(config, seed=3, precision="bf16"),
        mc.Model(config, seed=3, stored=dict.fromkeys(matrices, "bfloat16")),
        mc.Model(config, seed=3, lora=mc.LoraConfig(rank=4)),
    ]
    found[0].train_only(["embed", "head"])
    return found


@pytest.mark.parametrize("number", range(4))
def test_a_copy_has_the_same_bits_and_its_own_weights(number: int) -> None:
    model = models()[number]
    twin = copy.deepcopy(model)
    assert_array_equal(twin.logits(IDS), model.logits(IDS))
    assert repr(twin) == repr(model)
    name = next(iter(model.parameters))
    before = np.array(model.parameters[name])
    twin.set_parameter(name, np.zeros_like(before))
    assert_array_equal(model.parameters[name], before)


def test_containers_copy_a_model_once() -> None:
    model = models()[0]
    first, second = copy.deepcopy([model, model])
    assert first is second and first is not model


def test_pickle_says_what_to_do(tmp_path: Path) -> None:
    model = models()[0]
    with pytest.raises(TypeError, match=r"model\.save\(folder\) and mc\.Model\.load\(folder\)"):
        PICKLED(model)
    with pytest.raises(TypeError, match=r"copy\.copy: expected copy\.deepcopy\(model\)"):
        copy.copy(model)


@pytest.mark.parametrize("act", [copy.deepcopy, copy.copy, PICKLED])
def test_a_trainer_cannot_be_copied(act: Callable[[mc.Trainer], object]) -> None:
    refused = pytest.raises(TypeError, match=r"a Trainer cannot be copied or pickled; type trainer\.save")
    with mc.Trainer(mc.load_config("tiny.py", SIZES), model=models()[0]) as trainer, refused:
        act(trainer)
