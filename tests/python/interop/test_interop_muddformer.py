"""Weights and batches of the MUDDFormer authors' two programs, with and without connections, against PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from mudd_core import interop
from mudd_core.config import TransformerPPConfig
from reference import muddformer_originals as orig
from reference import torch_models as tm
from reference import torch_training as tt
from reference.bounds import LOGITS, LOSS, ROUNDINGS, moved
from reference.torch_muddformer import MuddConfig

SOURCES = ((0, 1), (0, 1, 2), (0, 1, 2, 3))


def reference(streams: bool = True, **more: Any) -> MuddConfig:
    none = ((), (), ())
    sizes: dict[str, Any] = {
        "kv_heads": 2,
        "ffn": orig.INNER,
        "hidden": orig.HIDDEN if streams else (0, 0, 0),
    }
    return MuddConfig(orig.V, orig.L, orig.D, orig.H, sources=SOURCES if streams else none, **(sizes | more))


JAX_BOTH = {**orig.JAX_MUDD, "mudd_prenorm": True, "mudd_postnorm": True}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], tm.Config]] = {
    "jax_plain": (
        "muddformer_jax",
        orig.JAX_PLAIN,
        orig.jax_shapes(orig.JAX_PLAIN),
        tm.LlamaConfig(61, 3, 32, 4, 2, 256),
    ),
    "jax_mudd": ("muddformer_jax", orig.JAX_MUDD, orig.jax_shapes(orig.JAX_MUDD), reference()),
    "jax_norms": (
        "muddformer_jax",
        JAX_BOTH,
        orig.jax_shapes(JAX_BOTH),
        reference(prenorm=True, postnorm=True),
    ),
    "torch_mudd": (
        "muddformer_torch",
        orig.TORCH_MUDD,
        orig.torch_shapes(orig.TORCH_MUDD),
        reference(qk_norm=True, first_norms=1, gelu="erf"),
    ),
    "torch_plain": (
        "muddformer_torch",
        orig.TORCH_PLAIN,
        orig.torch_shapes(orig.TORCH_PLAIN),
        reference(False, qk_norm=True),
    ),
    "torch_pythia": (
        "muddformer_torch",
        orig.TORCH_PYTHIA,
        orig.torch_shapes(orig.TORCH_PYTHIA, pythia=True),
        reference(
            kv_heads=4,
            pythia=True,
            qk_norm=True,
            first_norms=1,
            gelu="erf",
            rope_fraction=0.25,
            norm_eps=1e-5,
        ),
    ),
}


def tokens(samples: int = 2) -> Any:
    ids = np.random.default_rng(3).integers(1, orig.V, (samples, 13))
    ids[0, 4] = ids[1, 12] = 0
    return ids


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_and_gradients_of_the_original(name: str) -> None:
    system, config, shapes, cfg = CASES[name]
    given = orig.filled(shapes)
    model = interop.load_original(system, config, given)
    ids = tokens()
    batch = {"tokens": ids}
    ours = {key: np.array(view) for key, view in model.parameters.items()}
    targets = np.where(ids[:, 1:] == 0, -100, ids[:, 1:])
    want = tt.loss_and_grads(ours, ids[:, :-1], targets, cfg, dtype=torch.float64)
    np.testing.assert_allclose(
        model.logits(batch), want.logits, rtol=0, atol=LOGITS * np.abs(want.logits).max()
    )
    assert model.loss(batch) == pytest.approx(want.loss, rel=LOSS)
    loss, gradients = model.loss_and_gradients(batch)
    assert loss == pytest.approx(want.loss, rel=LOSS)
    used = {
        k: v
        for k, v in shapes.items()
        if config.get("dense", True) or not k.startswith(("dense_", "dynamic_"))
    }
    assert {key: g.shape for key, g in gradients.items()} == used
    # Check the gradient by a small step along it, with weights and gradient in the program's layout.
    moved = {key: given[key] + (np.float32(1e-3) * gradients[key] if key in used else 0) for key in given}
    step = interop.load_original(system, config, moved).loss(batch) - loss
    slope = sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values())
    # A difference quotient of float32 losses.
    assert step / 1e-3 == pytest.approx(slope, rel=0.1)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("torch")])
def test_names_and_layouts_mean_what_the_pytorch_program_means(name: str) -> None:
    system, config, shapes, _ = CASES[name]
    given = orig.filled(shapes)
    want = orig.torch_logits(config, given, tokens()[:, :-1])
    got = interop.load_original(system, config, given).logits({"tokens": tokens()})
    np.testing.assert_allclose(got, want, rtol=0, atol=LOGITS * np.abs(want).max())


JAX_OPTIONS: dict[str, dict[str, Any]] = {
    "prenorm": {"mudd_prenorm": True},
    "postnorm": {"mudd_postnorm": True},
    "four_last_streams": {"dynamic_dense_fix_last_layer": False},
    "four_last_streams_norms": {
        "dynamic_dense_fix_last_layer": False,
        "mudd_prenorm": True,
        "mudd_postnorm": True,
        "dynamic_dense_hidden_expand": [1, 1, 1],
    },
    "widths": {"dynamic_dense_hidden_round": False, "dynamic_dense_hidden_expand": [2, 1, 3]},
    "even_widths": {"dynamic_dense_hidden_round": False, "dynamic_dense_hidden_expand": [1.5, 1.5, 1.5]},
    "one_number": {"dynamic_dense_hidden_round": False, "dynamic_dense_hidden_expand": 2},
    "relu": {"dynamic_dense_act_cls": "relu"},
    "silu": {"dynamic_dense_act_cls": "silu", "mudd_prenorm": True},
    "tied": {"logits_via_embedding": True},
    "tied_as_it_is": {"logits_via_embedding": True, "normalize_embedding_logits": False},
    "one_kernel": {"ddw_gen_pattern": "qkvm", "mudd_postnorm": True},  # this pattern omits the norm
    "plain_tied": {"dense_conn": False, "dynamic_mlp_dim": False, "logits_via_embedding": True},
    "plain_grown": {"dense_conn": False},
    "equal_widths": {"dynamic_mlp_dim": False},
}


def jax_reference(config: dict[str, Any], given: Mapping[str, Any]) -> tuple[Any, float, dict[str, Any]]:
    """Return logits, loss and gradients in float64 from the JAX program's tensors."""
    leaves = {key: torch.tensor(x, dtype=torch.float64, requires_grad=True) for key, x in given.items()}
    logits = orig.jax_logits(config, leaves, tokens()[:, :-1])
    targets = torch.tensor(tokens()[:, 1:])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
    loss.backward()
    gradients = {
        key: np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy() for key, leaf in leaves.items()
    }
    return logits.detach().numpy(), float(loss.detach()), gradients


@pytest.mark.parametrize("name", JAX_OPTIONS)
def test_settings_of_the_jax_program_on_its_own_tensors(name: str) -> None:
    config = {**orig.JAX_MUDD, **JAX_OPTIONS[name]}
    given = orig.filled(orig.jax_shapes(config))
    model = interop.load_original("muddformer_jax", config, given)
    logits, loss, exact = jax_reference(config, given)
    assert np.abs(model.logits({"tokens": tokens()}) - logits).max() <= LOGITS * np.abs(logits).max()
    got, gradients = model.loss_and_gradients({"tokens": tokens()})
    assert got == pytest.approx(loss, rel=LOSS)
    assert set(gradients) == set(given)
    # The norm after the sums amplifies rounding if a sum nearly cancels (postnorm: an rms of 0.03 next to 2).
    allowed = moved(lambda weights: jax_reference(config, weights)[2], given)
    for key, gradient in exact.items():
        assert np.abs(gradients[key] - gradient).max() <= ROUNDINGS * allowed[key], key


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name: str) -> None:
    system, config, shapes, _ = CASES[name]
    given = orig.filled(shapes)
    model = interop.load_original(system, config, given)
    plain = mc.Model(model.config)
    for key, view in model.parameters.items():
        plain.set_parameter(key, view)
    settings, back = interop.export_original(system, plain)
    assert all(np.array_equal(back[key], given[key]) for key in back)
    again = interop.load_original(system, settings, back)
    assert np.array_equal(again.logits({"tokens": tokens()}), model.logits({"tokens": tokens()}))


def test_the_jax_baseline_is_a_transformer_pp() -> None:
    model = interop.load_original(
        "muddformer_jax", orig.JAX_PLAIN, orig.filled(orig.jax_shapes(orig.JAX_PLAIN))
    )
    assert isinstance(model.config, TransformerPPConfig)


def test_settings_that_are_left_out_follow_from_the_tensors() -> None:
    left_out = (
        "dynamic_dense_hidden_expand",
        "dynamic_dense_hidden_round",
        "dynamic_dense_type",
        "head_dim",
        "emb_dim",
    )
    config = {key: value for key, value in orig.JAX_MUDD.items() if key not in left_out}
    given = orig.filled(orig.jax_shapes(orig.JAX_MUDD))
    model = interop.load_original("muddformer_jax", config, given)
    assert model.config.last_expand == 4 and model.config.hidden_round
    whole = interop.load_original("muddformer_jax", orig.JAX_MUDD, given)
    assert model.loss({"tokens": tokens()}) == whole.loss({"tokens": tokens()})


def test_zero_loss_counts_every_target() -> None:
    given = orig.filled(orig.jax_shapes(orig.JAX_MUDD))
    batch = {"tokens": tokens()}
    weights = {key: torch.tensor(x, dtype=torch.float64) for key, x in given.items()}
    logits = orig.jax_logits(orig.JAX_MUDD, weights, tokens()[:, :-1]).flatten(0, 1)
    targets = torch.tensor(tokens()[:, 1:]).flatten()
    assert (targets == 0).any()
    for zero_loss in (True, False):
        model = interop.load_original("muddformer_jax", {**orig.JAX_MUDD, "zero_loss": zero_loss}, given)
        want = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100 if zero_loss else 0)
        assert model.loss(batch) == pytest.approx(float(want), rel=LOSS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dynamic_dense_fix_last_layer": False}, "fix_last_layer"),
        ({"dynamic_dense_hidden_expand": [1, 4]}, "hidden_expand"),
        ({"dynamic_dense_hidden_expand": 9}, "dynamic_dense_conn1"),
        ({"dynamic_dense_act_cls": "tanh"}, "dynamic_dense_act_cls"),
        ({"use_untrainable_positional_embedding": True}, "use_untrainable_positional_embedding"),
        ({"trainable_position_size": 24}, "trainable_position_size"),
        ({"num_experts": 16}, "num_experts"),
        ({"rope_min_timescale": 4}, "rope_min_timescale"),
        ({"dynamic_dense_hidden_expand": [9, 1, 4]}, "dynamic_dense_conn1"),
        ({"ddw_gen_pattern": "qv"}, "ddw_gen_pattern"),
        ({"ddw_gen_pattern": "qkvm", "mudd_prenorm": True}, "ddw_gen_pattern"),
        ({"emb_dim": 48}, "emb_dim"),
        ({"num_kv_heads": 4}, "num_kv_heads"),
        ({"logits_via_embedding": True}, "logits_via_embedding"),
        ({"dynamic_dense_type": "l"}, "dynamic_dense_type"),
        ({"dynamic_dense_hidden_round": False}, "dynamic_dense_conn1"),
        ({"decoder_block": "gpt3"}, "decoder_block"),
        ({"dynamic_mlp_dim": False}, "elements|expected"),
    ],
)
def test_what_the_jax_program_does_otherwise_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        interop.load_original(
            "muddformer_jax", {**orig.JAX_MUDD, **change}, orig.filled(orig.jax_shapes(orig.JAX_MUDD))
        )


@pytest.mark.parametrize(
    ("model", "system", "words"),
    [
        ({"postnorm": True}, "muddformer_torch", "postnorm"),
        ({"period": 2}, "muddformer_jax", "period"),
        ({"mix": "static"}, "muddformer_jax", "static"),
        ({"qk_norm": True}, "muddformer_jax", "qk_norm"),
        (
            {"n_expert": 4},
            "muddformer_jax",
            r"n_expert: expected 0, the program's block has no experts, got 4",
        ),
        ({"n_expert": 4, "ffn_realloc": False}, "muddformer_torch", "n_expert"),
        ({"n_expert": 4}, "hf", r"family: .*got 'muddformer'"),
        ({}, "muddformer_torch", "first_norms"),
    ],
)
def test_what_the_programs_do_not_have_is_not_exported(
    model: dict[str, Any], system: str, words: str
) -> None:
    config = mc.config.MUDDFormerConfig(
        vocab_size=61, max_seq_len=24, d_model=32, n_layer=2, n_head=4, d_ff=256, **model
    )
    with pytest.raises(ValueError, match=words):
        interop.export_original(system, mc.Model(config))


def test_sizes_that_the_weights_do_not_have_are_named() -> None:
    given = orig.filled(orig.torch_shapes(orig.TORCH_MUDD))
    for name, size in {"dim": 48, "n_layer": 4, "vocab_size": 99}.items():
        with pytest.raises(ValueError, match=name):
            interop.load_original("muddformer_torch", {**orig.TORCH_MUDD, name: size}, given)
    turned = orig.filled(orig.jax_shapes(orig.JAX_MUDD))
    out = "decoder/layers_0/self_attention/out/kernel"
    turned[out] = turned[out].transpose(1, 0, 2)
    with pytest.raises(ValueError, match=r"out/kernel' has shape \(8, 4, 32\), expected \(4, 8, 32\)"):
        interop.load_original("muddformer_jax", orig.JAX_MUDD, turned)


def test_variants_of_the_pytorch_program() -> None:
    """An attention window as long as the context is accepted; unsupported variants are refused by name."""
    given = orig.filled(orig.torch_shapes(orig.TORCH_PYTHIA, pythia=True))
    plain = interop.load_original("muddformer_torch", orig.TORCH_PYTHIA, given)
    wide = interop.load_original("muddformer_torch", {**orig.TORCH_PYTHIA, "window_size": 24}, given)
    assert wide.loss({"tokens": tokens()}) == plain.loss({"tokens": tokens()})
    changes: list[dict[str, Any]] = [{"window_size": 23}, {"use_linear_bias": False}, {"sepln": False}]
    for change in changes:
        with pytest.raises(ValueError, match=rf"\[muddformer_torch\] {next(iter(change))}"):
            interop.load_original("muddformer_torch", {**orig.TORCH_PYTHIA, **change}, given)


def test_a_batch_without_tokens_is_named() -> None:
    model = interop.load_original(
        "muddformer_jax", orig.JAX_PLAIN, orig.filled(orig.jax_shapes(orig.JAX_PLAIN))
    )
    with pytest.raises(ValueError, match=r"\[muddformer_jax\] batch: expected tokens, got ids"):
        model.loss({"ids": tokens()})
    with pytest.raises(ValueError, match=r"\[muddformer_jax\] tokens: expected \[B, T \+ 1\]"):
        model.loss({"tokens": [[3]]})


def test_one_stream_with_postnorm_takes_no_residual_norm() -> None:
    """Only the residual's mixture is normalised (docs/maths/muddformer.md, 1.3), with one stream or several."""
    sizes: dict[str, Any] = {
        "vocab_size": 61,
        "max_seq_len": 24,
        "d_model": 32,
        "n_layer": 3,
        "n_head": 4,
        "d_ff": 256,
    }
    model = mc.Model(mc.config.MUDDFormerConfig(**sizes, streams="q", postnorm=True))
    gains = [name for name in model.parameters if name.endswith("post_gain")]
    assert gains == ["blocks.2.mix.post_gain"]
    assert np.isfinite(model.logits(tokens()[:, :-1].astype(np.int32))).all()
