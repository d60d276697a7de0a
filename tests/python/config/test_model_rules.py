"""Model(...) rejects a config that breaks a rule of its family, and ops accept every config that the rules allow."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.config import FAMILIES
from mudd_core.config.check import model_faults
from mudd_core.config.fields import FieldInfo, walk

BROKEN: dict[str, tuple[str, Any]] = {  # by family: a field and a value that its rules reject
    "transformer_pp": ("n_kv_head", 3),
    "gpt2": ("d_ff", 0),
    "muddformer": ("rope_fraction", 0.1),
    "mup": ("ff_multiple", 1e308),
    "tokenformer": ("slot_num", 0),
    "mixtral": ("top_k", 9),
}
WHOLE = (0, 1, 2, 3, 5, 8, 16, 31, 33, 100)
FRACTIONS = (-1.0, 0.0, 1e-30, 0.1, 0.3, 0.5, 1.0, 1.5, 10.0, 1e30, 1e308)


def small(family: str, **changes: Any) -> Any:
    sizes = {"vocab_size": 67, "max_seq_len": 12, "d_model": 32, "n_layer": 2, "n_head": 4, "d_ff": 64}
    if family == "mup":
        sizes = {name: size for name, size in sizes.items() if name not in ("n_head", "d_ff")}
        changes = {"d_head": 8, "qk_scale": 0.125, **changes}
    if family == "muddformer":
        sizes["d_ff"] = 256  # inner widths must be multiples of 128
    return FAMILIES[family].config(**{**sizes, **changes})


def values(info: FieldInfo) -> tuple[Any, ...]:
    if info.choices:
        return info.choices
    return {int: WHOLE, float: FRACTIONS, bool: (True, False)}.get(info.kind, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_names_the_field_that_breaks_a_rule(family: str) -> None:
    field, value = BROKEN[family]
    with pytest.raises(ValueError, match=re.escape(f"[Model] model.{field}: expected")):
        mc.Model(small(family, **{field: value}))


@pytest.mark.parametrize("family", FAMILIES)
def test_ops_take_every_value_that_the_rules_let_through(family: str) -> None:
    start = small(family)
    taken = 0
    for info in walk(start, ""):
        for value in values(info):
            config = dataclasses.replace(start, **{info.path: value})
            if config.vocab_size < 1 or config.max_seq_len < 1 or model_faults(config):
                continue
            taken += 1
            model = mc.Model(config, booked_only=True)
            model.plan("train", 2, min(12, config.max_seq_len))
            model.plan("logits", 1, 1)
    assert taken > 50
