"""Code shared by the JAX programs: layers by name or stacked along an axis, names of a batch, dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mudd_core.engine.model import Model
from mudd_core.interop import export_original, load_original
from near import REORDERED
from reference import muddformer_originals, tokenformer_originals

Array = np.ndarray[Any, Any]
TOKENFORMER: dict[str, Any] = {
    "base_num_query_heads": 4,
    "max_target_length": 24,
    "logits_via_embedding": True,
    "qkv_bias": True,
    "proj_bias": True,
    "ffn_bias": True,
}
BASELINE: dict[str, Any] = {"max_target_length": 24, "logits_via_embedding": True}


def baseline_shapes() -> dict[str, tuple[int, ...]]:
    """Return gpt2.yml's shapes with two layers of four heads of width 8 (docs/maths/tokenformer.md, 3)."""
    layers, d = "decoder/layers/", 32
    norms = ("pre_self_attention_norm", "mlp/mlp_layer_norm")
    shapes: dict[str, tuple[int, ...]] = {
        f"{layers}{n}/{p}": (d, 2) for n in norms for p in ("scale", "bias")
    }
    for name in ("query", "key", "value"):
        shapes[f"{layers}self_attention/{name}/kernel"] = (d, 2, 4, 8)
        shapes[f"{layers}self_attention/{name}/bias"] = (4, 2, 8)
    shapes |= {layers + "self_attention/out/kernel": (4, 2, 8, d), layers + "self_attention/out/bias": (d, 2)}
    shapes |= {layers + "mlp/wi/kernel": (d, 2, 24), layers + "mlp/wi/bias": (24, 2)}
    shapes |= {layers + "mlp/wo/kernel": (24, 2, d), layers + "mlp/wo/bias": (d, 2)}
    return shapes | {
        "token_embedder/embedding": (61, d),
        "decoder/decoder_norm/scale": (d,),
        "decoder/decoder_norm/bias": (d,),
    }


CASES: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "tokenformer": ("tokenformer_jax", TOKENFORMER, tokenformer_originals.jax_shapes(TOKENFORMER)),
    "baseline": ("tokenformer_jax", BASELINE, baseline_shapes()),
    "llama": (
        "muddformer_jax",
        muddformer_originals.JAX_PLAIN,
        muddformer_originals.jax_shapes(muddformer_originals.JAX_PLAIN),
    ),
}


def by_name(stacked: dict[str, Array]) -> dict[str, Array]:
    """Split stacks along axis 1 into a tensor for each layer."""
    weights = {}
    for name, array in stacked.items():
        if "/layers/" not in name:
            weights[name] = array
            continue
        for layer in range(array.shape[1]):
            weights[name.replace("/layers/", f"/layers_{layer}/")] = array.take(layer, axis=1)
    return weights


def stacked(weights: dict[str, Array], axis: int) -> dict[str, Array]:
    """Stack the tensors of the layers."""
    out = {name: array for name, array in weights.items() if "/layers_" not in name}
    for name in weights:
        if "/layers_0/" in name:
            layers = [key for key in weights if key.split("/", 2)[2:] == name.split("/", 2)[2:]]
            out[name.replace("/layers_0/", "/layers/")] = np.stack(
                [weights[key] for key in sorted(layers)], axis
            )
    return out


def batch() -> dict[str, Array]:
    ids = np.random.default_rng(2).integers(1, 61, (2, 13))
    return {"inputs": ids[:, :-1], "targets": ids[:, 1:]}


@pytest.mark.parametrize("name", CASES)
def test_stacked_layers_are_those_with_names(name: str) -> None:
    system, config, shapes = CASES[name]
    one = by_name(muddformer_originals.filled(shapes))
    assert any("/layers_1/" in key for key in one)
    want = load_original(system, {**config, "scan_layers": False}, one)
    loss, gradients = want.loss_and_gradients(batch())
    assert set(gradients) == set(one)
    for more in ({}, {"scan_layers": True}, {"scan_layers": True, "param_scan_axis": 0}):
        axis = more.get("param_scan_axis", 1)
        model = load_original(system, {**config, **more}, stacked(one, axis))
        got, theirs = model.loss_and_gradients(batch())
        assert got == loss and model.config == want.config
        for key, array in stacked(gradients, axis).items():
            assert np.array_equal(theirs[key], array), key
        settings, back = export_original(system, model)
        assert settings["scan_layers"] is True
        assert {k: v.shape for k, v in back.items()} == {k: v.shape for k, v in stacked(one, axis).items()}


@pytest.mark.parametrize("name", CASES)
def test_an_export_says_how_its_layers_lie(name: str) -> None:
    system, config, shapes = CASES[name]
    model = load_original(system, config, muddformer_originals.filled(shapes))
    plain = Model(model.config)
    for key, value in model.parameters.items():
        plain.set_parameter(key, value)
    settings, weights = export_original(system, plain)
    assert settings["scan_layers"] is any("/layers/" in key for key in weights)
    assert load_original(system, settings, weights).loss(batch()) == model.loss(batch())


@pytest.mark.parametrize("name", CASES)
def test_settings_that_contradict_how_the_layers_lie_are_named(name: str) -> None:
    system, config, shapes = CASES[name]
    one = by_name(muddformer_originals.filled(shapes))
    with pytest.raises(ValueError, match=r"scan_layers: True, but .* under a name each"):
        load_original(system, {**config, "scan_layers": True}, one)
    with pytest.raises(ValueError, match=r"scan_layers: False, but .* stacked"):
        load_original(system, {**config, "scan_layers": False}, stacked(one, 1))


def test_a_muddformer_batch_as_the_program_makes_it() -> None:
    """The mask targets_segmentation is 1 for ids above 0 unless zero_loss is set (docs/maths/muddformer.md, 4.4)."""
    system, config, shapes = CASES["llama"]
    given = muddformer_originals.filled(shapes)
    tokens = np.random.default_rng(3).integers(0, 8, (2, 13))
    assert (tokens[:, 1:] == 0).any()
    theirs = {
        "inputs": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "inputs_position": np.tile(np.arange(12), (2, 1)),
        "inputs_segmentation": np.ones((2, 12), int),
        "targets_position": np.tile(np.arange(12), (2, 1)),
        "targets_segmentation": (tokens[:, 1:] > 0).astype(int),
    }
    pair = {name: theirs[name] for name in ("inputs", "targets")}
    for zero_loss in (False, True):
        model = load_original(system, {**config, "zero_loss": zero_loss}, given)
        want = model.loss({"tokens": tokens})
        masked = {**theirs, "targets_segmentation": theirs["targets_segmentation"] | zero_loss}
        assert model.loss(masked) == pytest.approx(want, rel=REORDERED)
        assert model.loss(pair) == want
        # float32 on both sides, with the sums in another order.
        np.testing.assert_allclose(model.logits(theirs), model.logits({"tokens": tokens}), atol=1e-5)
    moved = model.logits({**theirs, "inputs_position": np.arange(12)[None] * [[1], [2]]})
    assert np.array_equal(moved[0], model.logits(theirs)[0]) and not np.array_equal(
        moved[1], model.logits(theirs)[1]
    )
    with pytest.raises(ValueError, match=r"\[muddformer_jax\] batch: expected inputs.* got 'labels'"):
        model.loss({**pair, "labels": tokens})


def test_muddformer_dropout_counts_where_it_is_on() -> None:
    system, config, shapes = CASES["llama"]
    given = muddformer_originals.filled(shapes)
    plain = load_original(system, config, given)
    for more in ({"enable_dropout": True, "dropout_rate": 0}, {"enable_dropout": False, "dropout_rate": 0.1}):
        assert load_original(system, {**config, **more}, given).config == plain.config
    with pytest.raises(ValueError, match="dropout_rate"):
        load_original(system, {**config, "enable_dropout": True, "dropout_rate": 0.1}, given)
