"""Every setting of the config classes of the installed transformers is computed, has no effect, or is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from hf_models import transformers
from mudd_core.config.families import MixtralConfig
from mudd_core.interop.hf_rows import Fixed, Inert
from mudd_core.interop.hf_settings import model_config, original_config
from mudd_core.interop.hf_tables import KINDS

# Another value of each computed setting, unless twice the default or the other flag will do.
OTHERS: dict[str, Any] = {
    "activation_function": "gelu",
    "hidden_act": "relu",
    "hidden_activation": "silu",
    "layer_types": ["sliding_attention"] * 31 + ["full_attention"],
    "partial_rotary_factor": 0.5,
    "rope_parameters": {"rope_type": "linear", "factor": 2.0},
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "rope_theta": 77.0,
    "head_dim": 48,
    "n_inner": 64,
    "num_key_value_heads": 16,
    "sliding_window": 100,
    "max_window_layers": 3,
    "use_sliding_window": True,
    "output_router_logits": True,
    "router_jitter_noise": 0.5,
    "capacity_factor": 1.5,
    "num_experts": 4,
    "no_rope_layers": [1] * 35 + [0],
    "no_rope_layer_interval": 3,
}
# Settings that have an effect only together with others.
BESIDE: dict[str, dict[str, Any]] = {
    "layer_types": {"use_sliding_window": True},
    "max_window_layers": {"use_sliding_window": True},
    "sliding_window": {"use_sliding_window": True},
    "use_sliding_window": {"sliding_window": 50},
    "router_aux_loss_coef": {"output_router_logits": True},
}
# Settings whose value must not be transformers' default.
NEEDED: dict[str, dict[str, Any]] = {"qwen3_moe": {"norm_topk_prob": True}}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
BESIDE["original_max_position_embeddings"] = {"rope_scaling": LLAMA3}


def defaults(kind: str) -> dict[str, Any]:
    values: dict[str, Any] = getattr(transformers, KINDS[kind].config_class)(**NEEDED.get(kind, {})).to_dict()
    return values


def computed(kind: str) -> set[str]:
    """Return the settings that affect fields of our model."""
    return {name for row in KINDS[kind].rows if not isinstance(row, Fixed | Inert) for name in row.names}


def fixed(kind: str) -> dict[str, tuple[Any, ...]]:
    return {row.theirs: row.values for row in KINDS[kind].rows if isinstance(row, Fixed)}


def read(kind: str, settings: dict[str, Any]) -> None:
    model_config({**bare(kind), **settings})


def bare(kind: str) -> dict[str, Any]:
    """Return the settings without which a kind is refused."""
    return {"model_type": kind, **NEEDED.get(kind, {})}


def other(given: Any) -> Any:
    return not given if isinstance(given, bool) else 2 * (given or 1)


@pytest.mark.parametrize("kind", KINDS)
def test_no_setting_of_a_config_class_is_unknown(kind: str) -> None:
    cls = getattr(transformers, KINDS[kind].config_class)
    names = {field.name for field in dataclasses.fields(cls)} | set(defaults(kind)) | set(cls.attribute_map)
    for name in names - set(cls.attribute_map):
        read(kind, {name: defaults(kind).get(name)})
    read(kind, defaults(kind))
    unknown = names - set(cls.attribute_map) - computed(kind) - set(fixed(kind))
    for name in sorted(unknown - {"model_type"}):  # each of these has a row without effect
        read(kind, {name: "a value"})


@pytest.mark.parametrize("kind", KINDS)
def test_absent_settings_take_the_defaults_of_transformers(kind: str) -> None:
    absent = model_config(bare(kind))
    assert absent.settled() == model_config(defaults(kind)).settled()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_writes_what_it_reads_of_every_setting(kind: str) -> None:
    for name in sorted(computed(kind) - {"capacity_factor"}):  # no class of transformers has it
        beside = {k: v for k, v in BESIDE.get(name, {}).items() if k in computed(kind)}
        value = OTHERS[name] if name in OTHERS else other(defaults(kind).get(name))
        try:
            first = model_config({**bare(kind), **beside, name: value})
        except ValueError:
            continue
        written = KINDS[kind].write(first)
        again = model_config(written)
        assert again.settled() == first.settled(), (name, value)
        assert json.dumps(original_config(again)) == json.dumps(written)
        rows = [(row, set(row.write(first))) for row in KINDS[kind].rows]
        assert all(names <= set(row.names) for row, names in rows)
        assert sum(len(names) for _, names in rows) == len(written)  # no setting is written twice


@pytest.mark.parametrize("kind", KINDS)
def test_a_computed_setting_is_never_ignored(kind: str) -> None:
    base = bare(kind)
    for name in sorted(computed(kind)):
        beside = {k: v for k, v in BESIDE.get(name, {}).items() if k in computed(kind)}
        if KINDS[kind].family is MixtralConfig and "rope_scaling" in beside:
            continue  # this one is refused
        before = model_config({**base, **beside}).settled()
        given = defaults(kind).get(name)
        value = OTHERS[name] if name in OTHERS else other(given)
        try:
            after = model_config({**base, **beside, name: value}).settled()
        except ValueError as error:
            assert name.split("_")[0] in str(error)
            continue
        assert after != before, (kind, name, value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_computed_is_refused_with_its_value(kind: str) -> None:
    for name, allowed in fixed(kind).items():
        for value in allowed:
            read(kind, {name: value})
        with pytest.raises(ValueError, match=f"{name}.*'other'"):
            model_config({**bare(kind), name: "other"})
    with pytest.raises(ValueError, match=r"attention_sink: expected a setting of transformers.*got 4"):
        model_config({**bare(kind), "attention_sink": 4})
    assert model_config({**bare(kind), "attention_sink": None})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type.*llama3.*'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope_scaling.rope_type.*'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 3}},
            "rope_scaling.beta_fast.*got 3",
        ),
        ({"rope_scaling": {**LLAMA3, "factor": "wide"}}, "rope_scaling.factor.*'wide'"),
        ({"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}}, "mrope_section"),
        ({"rope_scaling": "linear"}, "rope_scaling: expected an object, got 'linear'"),
        ({"use_sliding_window": True, "layer_types": ["full_attention"]}, "layer_types: expected 32 of"),
        ({"layer_types": ["sliding_attention"] * 32}, "use_sliding_window"),
        ({"layer_types": ["chunked_attention"] * 32}, "layer_types"),
        ({"use_sliding_window": True, "sliding_window": 0, "max_window_layers": 0}, "sliding_window"),
    ],
)
def test_settings_of_qwen_that_we_do_not_compute(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model_config({"model_type": "qwen3", **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"no_rope_layers": [1, 0]}, "no_rope_layers: expected a list of 0 or 1 for each of 36 layers"),
        ({"no_rope_layers": [2] * 36}, "no_rope_layers: expected a list of 0 or 1"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval"),
        (
            {"layer_types": ["sliding_attention"] * 36},
            "use_sliding_window: expected true and a sliding_window",
        ),
    ],
)
def test_settings_of_smollm3_that_we_do_not_compute(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model_config({"model_type": "smollm3", **change})


def test_theta_of_olmo3_that_versions_of_transformers_read_differently() -> None:
    with pytest.raises(
        ValueError, match=r"rope_theta: expected 500000, or a rope_theta in rope_param.*got 7"
    ):
        model_config({"model_type": "olmo3", "rope_theta": 7.0})
    scaled = {"factor": 2.0, "rope_type": "linear", "rope_theta": 5e5}
    ours = model_config({"model_type": "olmo3", "rope_theta": 5e5, "rope_scaling": scaled})
    assert (ours.rope_factor, ours.rope_local_base, ours.sliding_layers[:9]) == (2.0, 5e5, "0-2,4-6,8")
    with pytest.raises(ValueError, match=r"rope_scaling.rope_type.*'yarn'"):
        model_config({"model_type": "olmo3", "rope_scaling": {**scaled, "rope_type": "yarn"}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "rope_scaling.rope_type: expected default, got 'longrope'",
        ),
        ({"rope_parameters": {"rope_theta": 1e4, "factor": 2.0}}, "rope_parameters.factor: expected no such"),
        ({"attention_bias": True}, "attention_bias: expected False, got True"),
    ],
)
def test_settings_of_phi3_that_we_do_not_compute(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model_config({"model_type": "phi3", **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm_topk_prob": False}, "norm_topk_prob: expected true, got False"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step: expected 1, got 2"),
        ({"mlp_only_layers": [3]}, r"mlp_only_layers: expected \[\], got \[3\]"),
        ({"attention_bias": True}, "attention_bias: expected False, got True"),
        ({"use_sliding_window": True}, "use_sliding_window: expected False, got True"),
        ({"rope_scaling": LLAMA3}, "rope_scaling: expected null"),
        ({"num_experts": 0}, "num_experts: expected"),
    ],
)
def test_settings_of_qwen3_moe_that_we_do_not_compute(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model_config({**bare("qwen3_moe"), **change})
    with pytest.raises(
        ValueError, match=r"norm_topk_prob: expected true, got None; .* write it into config.json"
    ):
        model_config({"model_type": "qwen3_moe"})
    assert model_config({**bare("qwen3_moe"), "num_local_experts": 6, "max_window_layers": 4}).n_expert == 6


def test_an_unknown_type_is_answered_with_those_that_are_read() -> None:
    with pytest.raises(ValueError, match=f"{', '.join(KINDS)}, gemma3, got 'falcon'"):
        model_config({"model_type": "falcon"})
    with pytest.raises(ValueError, match="layer_types: expected null: all layers of a Mistral are alike"):
        model_config({"model_type": "mistral", "layer_types": ["full_attention"] * 32})
