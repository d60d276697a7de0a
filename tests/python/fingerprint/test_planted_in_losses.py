"""One flipped bit is named in the ops of other losses, adapters and dropout; each op of the core has a planted flip."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core
from mudd_core.config import LoraConfig, LossConfig
from mudd_core.data.rows import TEACHER_PARTS
from mudd_core.engine.teaching import Teaching
from mudd_core.fingerprint.compared import Pair, first_pair
from planted_flips import Planted, lines_on, one_of_each
from small_models import CASES, make_batch

Case = tuple[mc.Model, dict[str, Any]]
BATCH = make_batch(61, 4, 8)


def dropped() -> Case:
    rates = {"embd_dropout": 0.2, "attn_dropout": 0.3, "resid_dropout": 0.1}
    return mc.Model(dataclasses.replace(CASES["gpt2"][0], vocab_size=61, **rates)), BATCH


def adapted() -> Case:
    return mc.Model(dataclasses.replace(CASES["llama_gqa"][0], vocab_size=61), lora=LoraConfig(rank=4)), BATCH


def adapted_gpt2() -> Case:
    return mc.Model(dataclasses.replace(CASES["gpt2"][0], vocab_size=61), lora=LoraConfig(rank=4)), BATCH


def summed() -> Case:
    return mc.Model(dataclasses.replace(CASES["gemma"][0], vocab_size=61)), BATCH


def regularized() -> Case:
    model, batch = adapted()
    model.regularized = LossConfig(label_smoothing=0.2, z=0.01)
    return model, batch


def preferred() -> Case:
    model = mc.Model(dataclasses.replace(CASES["llama_gqa"][0], vocab_size=61))
    model.pairs = LossConfig(kind="dpo", beta=0.3)
    return model, {**BATCH, "reference": np.full((4, 3), -7, np.float32)}


def taught() -> Case:
    model = mc.Model(dataclasses.replace(CASES["llama_gqa"][0], vocab_size=61))
    model.teaching = Teaching(2, 0.5)
    ids = np.tile(np.array([3, 9], np.int32), (4, 8, 1))
    log_probs = np.full((4, 8, 2), np.log(0.3), np.float32)
    return model, {**BATCH, **dict(zip(TEACHER_PARTS, (ids, log_probs), strict=True))}


def tabled() -> Case:
    config = dataclasses.replace(CASES["llama_gqa"][0], vocab_size=61, ngram_rows=50, ngram_width=8)
    model = mc.Model(config, seed=1)
    rows = np.random.default_rng(2).standard_normal((50, 8)).astype(np.float32)
    model.set_parameter("ngrams.rows", rows)
    return model, BATCH


OTHERS = (dropped, adapted, adapted_gpt2, summed, regularized, preferred, taught, tabled)
FAMILIES = ("llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral", "mudd_experts")


@pytest.mark.parametrize("case", OTHERS)
def test_a_flip_in_each_op_is_named(case: Callable[[], Case]) -> None:
    model, batch = case()
    before = lines_on(model, batch)
    for line in one_of_each(before):
        flip = Planted(line.key, int(np.prod(line.shape)) // 2)
        after = lines_on(model, batch, flip)
        found = first_pair([Pair(a, b) for a, b in zip(before, after, strict=True)])
        assert flip.flipped == 1 and found is not None and found.a.key == line.key, line.key


def test_the_planted_flips_cover_each_op_of_the_core() -> None:
    cases = [case() for case in OTHERS]
    for family in FAMILIES:
        config = dataclasses.replace(CASES[family][0], vocab_size=61)
        cases.append((mc.Model(config), BATCH))
    found = {line.op for model, batch in cases for line in lines_on(model, batch)} - {"data"}
    optimizers = {spec.name for spec in _core.optimizer_specs()}  # test_planted_flips.py
    assert found == {spec.name for spec in _core.op_specs()} - optimizers
