"""Hostile settings and weights of every original program raise a ValueError that names them, and nothing else."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.cli import main
from mudd_core.config import GPT2Config, MixtralConfig, TransformerPPConfig
from mudd_core.engine.model import Model
from mudd_core.interop import export_original, load_original
from mudd_core.interop.hf_rows import HfModel
from reference import muddformer_originals as mudd
from reference import tokenformer_originals as tokenformer
from test_interop_maxtext import BASELINE, baseline_shapes
from test_interop_mup import VARIANTS, shapes_of
from test_interop_tokenformer_options import JAX, NEOX

SIZES: dict[str, Any] = {
    "vocab_size": 17,
    "max_seq_len": 8,
    "d_model": 8,
    "n_layer": 2,
    "n_head": 2,
    "d_ff": 8,
}
GEMMA3: dict[str, Any] = {
    "qk_norm": True,
    "norm_place": "both",
    "gain_offset": 1.0,
    "scale_embeddings": True,
    "sliding_window": 3,
    "sliding_layers": "0",
    "rope_local_base": 100.0,
}
OLMO3: dict[str, Any] = {
    "qk_norm": True,
    "qk_norm_whole": True,
    "norm_place": "after",
    "sliding_window": 3,
    "sliding_layers": "0",
}
# The fields of a config whose export has the type of this name.
OURS: dict[str, tuple[type[HfModel], dict[str, Any]]] = {
    "llama": (TransformerPPConfig, {}),
    "gpt2": (GPT2Config, {}),
    "gpt_neox": (GPT2Config, {"positions": "rotary", "parallel": True, "tie_embeddings": False}),
    "mixtral": (MixtralConfig, {"n_expert": 3, "aux_scope": "batch"}),
    "gemma3_text": (TransformerPPConfig, GEMMA3),
    "olmo3": (TransformerPPConfig, OLMO3),
    "phi3": (TransformerPPConfig, {"joined_projections": True, "rope_fraction": 0.5}),
}
JAX_NORMS = {
    **mudd.JAX_MUDD,
    "mudd_prenorm": True,
    "mudd_postnorm": True,
    "dynamic_dense_hidden_expand": [1, 1, 4],
    "dynamic_dense_type": "qkvm",
}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "mup": ("mu_transformer", VARIANTS["all_options"], shapes_of(VARIANTS["all_options"])),
    "jax_plain": ("muddformer_jax", mudd.JAX_PLAIN, mudd.jax_shapes(mudd.JAX_PLAIN)),
    "jax_mudd": ("muddformer_jax", JAX_NORMS, mudd.jax_shapes(JAX_NORMS)),
    "torch_mudd": ("muddformer_torch", mudd.TORCH_MUDD, mudd.torch_shapes(mudd.TORCH_MUDD)),
    "torch_pythia": (
        "muddformer_torch",
        mudd.TORCH_PYTHIA,
        mudd.torch_shapes(mudd.TORCH_PYTHIA, pythia=True),
    ),
    "tokenformer": ("tokenformer_jax", JAX, tokenformer.jax_shapes(JAX)),
    "baseline": ("tokenformer_jax", BASELINE, baseline_shapes()),
    "neox": ("tokenformer_neox", NEOX, tokenformer.neox_shapes(NEOX)),
}
# Settings that the examples above do not contain.
MORE = {
    "muddformer_jax": "scan_layers param_scan_axis enable_dropout dropout_rate mlp_dim base_mlp_dim dynamic_mlp_dim "
    "rope_max_timescale global_parameter_scale ddw_gen_pattern logits_via_embedding "
    "dynamic_dense_fix_last_layer dynamic_dense_act_cls",
    "muddformer_torch": "window_size intermediate_size dense_type rotary_pct rope_base norm_eps round64 expand_last "
    "n_local_heads block_size",
    "tokenformer_jax": "normalize_type zoom_dim drop_path enable_dropout dropout_rate qkv_bias qkv_scale_factor "
    "mlp_activations trainable_position_size num_query_heads use_untrainable_positional_embedding "
    "normalization_layer_epsilon param_scan_axis",
    "tokenformer_neox": "rotary_emb_base layernorm_epsilon sliding_window_width use_mup parameter_prefix "
    "embedding_name",
    "mu_transformer": "act_name act_square",
    "hf": "sliding_window num_experts capacity_factor router_jitter_noise rope_scaling hidden_act",
}
HOSTILE = [
    0,
    -1,
    3,
    2**40,
    10**400,
    0.5,
    math.nan,
    math.inf,
    1e308,
    "twelve",
    "",
    "-1",
    None,
    True,
    [],
    [0],
    ["x"],
    {},
    {"rope_theta": "x"},
]


@cache
def original(name: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return (system, settings, weights) of an original program that load without error."""
    if name in OURS:
        family, fields = OURS[name]
        return ("hf", *export_original("hf", Model(family(**SIZES, **fields))))
    system, settings, shapes = CASES[name]
    return system, settings, {key: np.zeros(shape, np.float32) for key, shape in shapes.items()}


def loads(system: str, settings: dict[str, Any], weights: dict[str, Any]) -> bool:
    """Return True if the settings and weights load. Only ValueError and FormatError are accepted as errors."""
    try:
        model = load_original(system, settings, weights)
        model.adapt({"tokens": np.ones((1, 4), np.int64)})
    except (ValueError, FormatError):
        return False
    return True


@pytest.mark.parametrize("name", [*OURS, *CASES])
def test_every_setting_may_be_anything(name: str) -> None:
    system, settings, weights = original(name)
    load_original(system, settings, weights)
    for key in [*settings, *MORE[system].split()]:
        for value in HOSTILE:
            loads(system, {**settings, key: value}, weights)
        loads(system, {k: v for k, v in settings.items() if k != key}, weights)


@pytest.mark.parametrize("name", [*OURS, *CASES])
def test_every_tensor_may_have_any_shape(name: str) -> None:
    system, settings, weights = original(name)
    for key, array in weights.items():
        shapes = [(), (3,), array.shape[::-1], (*array.shape, 1), array.shape[:-1], (0, *array.shape[1:])]
        for shape in [*shapes, (2**40, 0), (0, 2**40, 0), tuple(n + 1 for n in array.shape)]:
            if shape != array.shape:
                assert not loads(system, settings, {**weights, key: np.zeros(shape, np.float32)}), (
                    key,
                    shape,
                )
        assert not loads(system, settings, {k: v for k, v in weights.items() if k != key})


@given(st.data())
def test_several_settings_may_be_anything(data: st.DataObject) -> None:
    system, settings, weights = original(data.draw(st.sampled_from([*OURS, *CASES])))
    values = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.lists(st.integers(), max_size=3),
    )
    changes = st.dictionaries(st.sampled_from([*settings, *MORE[system].split()]), values, max_size=4)
    loads(system, {**settings, **data.draw(changes)}, weights)


@pytest.mark.parametrize(
    ("name", "setting", "value", "says"),
    [
        ("neox", "num_attention_heads", 0, "expected a whole number from 1 to"),
        ("llama", "num_attention_heads", 0, "expected a whole number from 1 to"),
        ("llama", "num_hidden_layers", 10**5, "the weights have 2, the settings say 100000"),
        ("llama", "num_hidden_layers", 2**40, "expected a whole number"),
        ("llama", "hidden_size", 2**30, "the weights have 8"),
        (
            "llama",
            "intermediate_size",
            2**31 - 1,
            r"'model.layers.0.mlp.gate_proj.weight' has shape \(8, 8\)",
        ),
        ("llama", "num_key_value_heads", "two", "expected a whole number .* got 'two'"),
        ("llama", "rms_norm_eps", "small", "expected a number, got 'small'"),
        ("llama", "tie_word_embeddings", "false", "expected true or false, got 'false'"),
        ("mixtral", "num_local_experts", 2**31 - 1, "the weights have 3"),
        ("gpt2", "n_head", 3, r"expected a multiple of model.n_head \(3\)"),
        ("jax_mudd", "dynamic_dense_hidden_expand", [1, math.inf, 4], "expected 3 positive numbers"),
    ],
)
def test_the_message_names_the_setting(name: str, setting: str, value: Any, says: str) -> None:
    system, settings, weights = original(name)
    with pytest.raises(ValueError, match=says) as caught:
        load_original(system, {**settings, setting: value}, weights)
    assert setting in str(caught.value) or setting == "intermediate_size"  # that message names the tensor


def test_import_of_hostile_files_is_2_or_65(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, settings, weights = original("llama")
    source, run = tmp_path / "hf", f"--workdir={tmp_path / 'run'}"
    write_folder(source, settings, weights, shard_bytes=200)
    index = json.loads((source / "model.safetensors.index.json").read_text())
    long = "x" * 5000
    files = {
        "config.json": [
            {**settings, "num_key_value_heads": "two"},
            {**settings, "num_hidden_layers": 2**40},
            [],
            None,
        ],
        "model.safetensors.index.json": [
            {"weight_map": dict.fromkeys(index["weight_map"], long)},
            {"weight_map": 3},
            {"weight_map": {"a": ["b"]}},
            {"weight_map": {"a": "b\0c"}},
        ],
    }
    for name, values in files.items():
        good = (source / name).read_text()
        for value in [*values, "[" * 100_000]:
            (source / name).write_text(value if isinstance(value, str) else json.dumps(value))
            assert main(["import", str(source), run, "data.tokenizer=bytes"]) in (2, 65), (name, value)
        (source / name).write_text(good)
    for words in (
        [long, run],
        [str(source), f"--workdir={tmp_path / long}"],
        [str(source), run, f"--settings={long}"],
    ):
        assert main(["import", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err and not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="at most 255 bytes"):
        load_original("hf", settings, long)


def test_an_export_to_a_program_without_the_family_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, settings, weights = original("llama")
    write_folder(tmp_path / "hf", settings, weights, shard_bytes=1 << 20)
    run = f"--workdir={tmp_path / 'run'}"
    assert main(["import", str(tmp_path / "hf"), run, "data.tokenizer=bytes"]) == 0
    for other in ("mu_transformer", "muddformer_torch", "tokenformer_jax", "tokenformer_neox"):
        assert main(["export", run, f"--to={tmp_path / other}", f"--system={other}"]) == 2
        assert f"[{other}] family: expected one of" in capsys.readouterr().err
    model = load_original(*original("mup"))
    for other in ("hf", "muddformer_jax", "tokenformer_jax"):
        with pytest.raises(ValueError, match="got 'mup'"):
            export_original(other, model)
    assert main(["import", "/dev/null", run + "2", f"--settings={tmp_path / 'hf' / 'config.json'}"]) == 2
    assert "Traceback" not in capsys.readouterr().err
