"""Settings of the two TokenFormer programs: logits, loss and gradients against their formulas on their tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mudd_core.interop import load_original
from reference import tokenformer_originals as orig

Array = np.ndarray[Any, Any]
JAX = {
    "base_num_query_heads": 4,
    "base_num_kv_heads": 4,
    "head_dim": 8,
    "base_emb_dim": 32,
    "slot_num": 10,
    "base_num_decoder_layers": 2,
    "max_target_length": 24,
    "logits_via_embedding": True,
    "drop_path": 0.0,
}
JAX_OPTIONS: dict[str, dict[str, Any]] = {
    **{
        kind: {"normalize_type": kind, "zoom_dim": zoom}
        for kind, zoom in (
            ("gelu_l2_norm", 0.0),
            ("l2_norm", 7.0),
            ("softmax", 0.0),
            ("gelu", 0.0),
            ("gelu_layer_norm", 0.0),
        )
    },
    "qkv": {"qkv_bias": True, "qkv_scale_factor": 0.7},
    "proj": {"proj_bias": True, "proj_scale_factor": 1.3},
    "ffn": {"ffn_bias": True, "ffn_scale_factor": 0.9, "zoom_dim": 6.5},
    "untied": {"logits_via_embedding": False},
    "logits_as_they_are": {"normalize_embedding_logits": False},
    "sines": {"use_untrainable_positional_embedding": True},
    "learned": {"trainable_position_size": 24},
    "all": {
        "normalize_type": "gelu_l2_norm",
        "zoom_dim": 5.0,
        "qkv_bias": True,
        "proj_bias": True,
        "ffn_bias": True,
        "logits_via_embedding": False,
        "trainable_position_size": 30,
        "proj_scale_factor": 0.5,
    },
}
NEOX: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "qkv_slot_num": 12,
    "proj_slot_num": 9,
    "ffn_slot_num": 40,
    "seq_length": 24,
    "max_position_embeddings": 24,
    "pos_emb": "rotary",
    "rotary_pct": 0.25,
    "no_weight_tying": False,
    "norm": "layernorm_nonparam",
    "final_norm": "layernorm",
    "norm_activation_type": "l2_norm_gelu",
    "hidden_dropout": 0,
    "attention_dropout": 0,
}
NEOX_OPTIONS: dict[str, dict[str, Any]] = {
    "twelve_layers": {"num_layers": 12},  # two of its modules end in 2
    "softmax": {"norm_activation_type": "softmax"},
    "gelu_l2_norm": {"norm_activation_type": "gelu_l2_norm", "rotary_pct": 1},
    "part_of_a_channel": {"rotary_pct": 0.6},  # 4.8 channels: the program rotates 4
    "untied": {"no_weight_tying": True},
    "no_positions": {"pos_emb": "none"},
    "learned_positions": {"pos_emb": "learned"},
}


def numbers(shapes: orig.Shapes) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}


def packed() -> dict[str, Array]:
    """Return two sequences of documents, the first with padding."""
    rng = np.random.default_rng(4)
    segments = np.array([[1] * 9 + [2] * 8 + [0] * 7, [1] * 3 + [2] * 10 + [3] * 11])
    starts = [np.concatenate([np.arange(n) for n in counts]) for counts in ((9, 8, 7), (3, 10, 11))]
    return {
        "inputs": rng.integers(0, 61, (2, 24)),
        "targets": rng.integers(0, 61, (2, 24)),
        "inputs_segmentation": segments,
        "inputs_position": np.array(starts),
        "targets_position": np.array(starts),
        "targets_segmentation": np.where(np.arange(24) % 9 == 8, 0, segments),
    }


def check(
    system: str, config: dict[str, Any], shapes: orig.Shapes, batch: dict[str, Array], counted: Array
) -> None:
    given = numbers(shapes)
    model = load_original(system, config, given)
    leaves = {key: torch.tensor(x, dtype=torch.float64, requires_grad=True) for key, x in given.items()}
    if system == "tokenformer_jax":
        logits = orig.jax_logits(config, leaves, batch)
    else:
        logits = orig.neox_logits(config, leaves, batch["inputs"])
    targets = torch.tensor(np.where(counted, batch["targets"], -1)).flatten()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, ignore_index=-1)
    loss.backward()
    want = logits.detach().numpy()
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(model.logits(batch) - want).max() <= 2e-5 * np.abs(want).max()
    got, gradients = model.loss_and_gradients(batch)
    # PyTorch computes in float32 too, with its sums in another order.
    assert got == pytest.approx(float(loss.detach()), rel=5e-6)
    assert set(gradients) == set(given)
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        exact = leaf.grad.numpy()
        floor = 1e-3 if name.endswith("k_value_slot/bias") else 1e-6  # zero in exact arithmetic
        assert np.abs(gradients[name] - exact).max() <= 5e-5 * max(np.abs(exact).max(), floor), name


@pytest.mark.parametrize("name", JAX_OPTIONS)
def test_settings_of_the_jax_program(name: str) -> None:
    config, batch = {**JAX, **JAX_OPTIONS[name]}, packed()
    check("tokenformer_jax", config, orig.jax_shapes(config), batch, batch["targets_segmentation"] > 0)


@pytest.mark.parametrize("name", NEOX_OPTIONS)
def test_settings_of_the_neox_program(name: str) -> None:
    config, batch = (
        {**NEOX, **NEOX_OPTIONS[name]},
        {k: v for k, v in packed().items() if k in ("inputs", "targets")},
    )
    check("tokenformer_neox", config, orig.neox_shapes(config), batch, np.ones((2, 24), bool))


def test_learned_positions_count_without_their_setting() -> None:
    config = {**JAX, "trainable_position_size": 24}
    weights = numbers(orig.jax_shapes(config))
    model = load_original("tokenformer_jax", JAX, weights)
    assert np.array_equal(
        model.logits(packed()), load_original("tokenformer_jax", config, weights).logits(packed())
    )


def test_without_enable_dropout_nothing_is_dropped() -> None:
    weights = numbers(orig.jax_shapes(JAX))
    plain = load_original("tokenformer_jax", JAX, weights)
    off = load_original(
        "tokenformer_jax", {**JAX, "drop_path": 0.5, "dropout_rate": 0.1, "enable_dropout": False}, weights
    )
    assert off.config == plain.config
    assert off.loss_and_gradients(packed())[0] == plain.loss_and_gradients(packed())[0]
    on = load_original("tokenformer_jax", {**JAX, "drop_path": 0.5, "enable_dropout": True}, weights)
    assert on.config.drop_path == 0.5
    with pytest.raises(ValueError, match="dropout_rate"):
        load_original("tokenformer_jax", {**JAX, "dropout_rate": 0.1, "enable_dropout": True}, weights)


def test_neox_settings_may_have_hyphens() -> None:
    weights = numbers(orig.neox_shapes(NEOX))
    model = load_original("tokenformer_neox", {k.replace("_", "-"): v for k, v in NEOX.items()}, weights)
    assert model.config == load_original("tokenformer_neox", NEOX, weights).config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"normalize_type": "l1"}, "normalize_type"),
        ({"head_dim": 16}, "head_dim"),
        ({"base_num_query_heads": 5}, "base_num_query_heads"),
        ({"slot_num": 24}, "slot_num"),
        ({"logits_via_embedding": False}, "logits_via_embedding"),
        ({"trainable_position_size": 24}, "position_embedder"),
        ({"base_num_query_heads": None, "head_dim": None}, "base_num_query_heads"),
    ],
)
def test_jax_settings_that_contradict_the_weights_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_original("tokenformer_jax", {**JAX, **change}, numbers(orig.jax_shapes(JAX)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"final_norm": "rmsnorm"}, "final_norm"),
        ({"sliding_window_width": 8}, "sliding_window_width"),
        ({"use_mup": True}, "use_mup"),
        ({"num_attention_heads": 5}, "num_attention_heads"),
        ({"ffn_slot_num": 48}, "ffn_slot_num"),
        ({"no_weight_tying": True}, "no_weight_tying"),
        ({"pos_emb": "learned"}, "position_embeddings"),
        ({"pos_emb": "sinusoidal"}, "pos_emb"),
        ({"num_layers": 3}, "num_layers"),
        ({"hidden_dropout": 0.1}, "hidden_dropout"),
    ],
)
def test_neox_settings_that_contradict_the_weights_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_original("tokenformer_neox", {**NEOX, **change}, numbers(orig.neox_shapes(NEOX)))
