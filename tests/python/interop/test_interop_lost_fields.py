"""Every field of every family in every original program: refused by name, noted, or with the same logits."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mudd_core.config import MixtralConfig, MUDDFormerConfig, TokenFormerConfig
from mudd_core.config.check import model_faults
from mudd_core.config.families import FAMILIES
from mudd_core.engine.model import Model
from mudd_core.interop import SYSTEMS, export_original, load_original
from mudd_core.interop import _system as system_named
from test_interop_settings import SIZES, original

IDS = np.arange(12).reshape(2, 6) % 17
MUDD = MUDDFormerConfig(**{**SIZES, "d_ff": 256})
# Configs that the systems support: the originals' examples, and families that another system also has.
BASES: list[tuple[str, Any]] = [
    *(
        (original(name)[0], load_original(*original(name)).config)
        for name in (
            "llama",
            "gpt2",
            "gpt_neox",
            "mixtral",
            "gemma3_text",
            "olmo3",
            "phi3",
            "mup",
            "jax_plain",
            "jax_mudd",
            "torch_mudd",
            "torch_pythia",
            "tokenformer",
            "baseline",
            "neox",
        )
        if original(name)[0] in SYSTEMS
    ),
    ("hf", MixtralConfig(**SIZES, n_expert=3, capacity_factor=0.5)),
    ("muddformer_jax", dataclasses.replace(MUDD, mix="none", ffn_realloc=False)),
    ("muddformer_jax", dataclasses.replace(MUDD, postnorm=True, prenorm=True)),
    ("muddformer_torch", dataclasses.replace(MUDD, mix="none")),
]
OTHER = {
    "sliding_layers": "0",
    "nope_layers": "0",
    "hidden": "5,9",
    "streams": "qk",
    "qk_scale": 0.3,
    "rope_fraction": 0.5,
    "ngram_orders": "1",
    "ngram_layers": "0",
}
# If only the first field changes, the model lacks a feature that the other program has in the second.
COUPLED = {
    "block": "rope_fraction",
    "mix": "first_norms",
    "norm_gains_type": "norm_gains",
    "norm_place": "qk_norm_whole",
    "positions": "parallel",
    "joined_projections": "rope_fraction",
    "qk_norm": "norm_place",
    "qk_norm_whole": "norm_place",
}


def others(field: dataclasses.Field[Any], value: Any) -> list[Any]:
    """Return legal values of a field except this one; a rule between fields may still refuse one."""
    choices = field.metadata["choices"]
    if field.name in OTHER:
        return [OTHER[field.name]]
    if choices:
        return [choice for choice in choices if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, 2, 1]
    return [value * 0.5 + 0.25, value + 1.0]


def changed(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield legal configs that differ from this one in one field, with its name."""
    for field in dataclasses.fields(config):
        if field.name in ("family", "vocab_size"):
            continue
        for value in others(field, getattr(config, field.name)):
            found = dataclasses.replace(config, **{field.name: value})
            try:
                legal = value != getattr(config, field.name) and not model_faults(found)
            except ValueError:
                legal = False
            if legal:
                yield field.name, found


def filled(config: Any) -> Model:
    """Return a model with random values everywhere, so that no bias or gain is neutral."""
    model, rng = Model(config, initialize=False), np.random.default_rng(0)
    for name, view in model.parameters.items():
        value = 0.3 * rng.standard_normal(view.shape) + (0.8 if "gain" in name else 0.0)
        model.set_parameter(name, value.astype(np.float32))
    return model


@pytest.mark.parametrize(
    ("system", "base"), BASES, ids=[f"{s}-{c.family}-{i}" for i, (s, c) in enumerate(BASES)]
)
def test_a_field_is_refused_by_name_or_noted_or_kept(system: str, base: Any) -> None:
    seen, dropping = set(), getattr(base, "capacity_factor", 0) > 0  # every export of that base is refused
    for name, config in changed(base):
        seen.add(name)
        model = filled(config)
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            try:
                settings, weights = export_original(system, model)
            except ValueError as error:
                named = (name, COUPLED.get(name, name), *(("capacity_factor",) if dropping else ()))
                assert f"[{system}]" in str(error) and any(n in str(error) for n in named), (name, error)
                continue
        again = load_original(system, settings, weights)
        ids = IDS[:, : config.max_seq_len]
        difference = np.abs(again.logits(ids) - model.logits(ids)).max()
        # float32 on both sides, with the sums in another order.
        assert difference <= 1e-5, (name, getattr(config, name), difference)
        kept = getattr(again.config.settled(), name, None) == getattr(config.settled(), name)
        field = next(field for field in dataclasses.fields(config) if field.name == name)
        silent = field.metadata["effect"] == "start" or field.metadata["free_on_resume"]
        assert (
            kept
            or silent
            or again.config.family != base.family
            or any(f"model.{name}" in str(note.message) for note in notes)
        ), name
    assert seen >= {"d_model", "n_layer", "norm_eps"}


@pytest.mark.parametrize(
    ("system", "config", "says"),
    [
        ("muddformer_torch", dataclasses.replace(MUDD, first_norms=3), "first_norms: .*, got 3"),
        ("muddformer_jax", dataclasses.replace(MUDD, rope_fraction=0.5), "rope_fraction: .*, got 0.5"),
        (
            "tokenformer_jax",
            TokenFormerConfig(**SIZES, positions="rotary", rope_fraction=1.0),
            "positions: .*, got 'rotary'",
        ),
    ],
)
def test_a_refusal_has_the_field_of_the_config_and_a_way_out(system: str, config: Any, says: str) -> None:
    says = rf"\[{system}\] model\.{says}; another --system may have it"
    with pytest.raises(ValueError, match=says):
        export_original(system, Model(config, initialize=False))


def test_every_field_has_an_effect_and_training_does_not_reach_the_logits() -> None:
    assert {system for system, _ in BASES} == set(SYSTEMS)
    assert {(s, f) for s in SYSTEMS for f in system_named(s).families} == {(s, c.family) for s, c in BASES}
    for system, base in BASES:
        assert FAMILIES[base.family].config is type(base)
        want = filled(base).logits(IDS)
        for name, config in changed(base):
            field = next(field for field in dataclasses.fields(base) if field.name == name)
            assert field.metadata["effect"] in ("logits", "training", "start")
            if field.metadata["effect"] != "logits" or config.settled() == base.settled():
                assert np.array_equal(filled(config).logits(IDS), want), (system, name)
