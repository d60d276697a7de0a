"""Weights, batches and gradients of the two TokenFormer programs, in their names, shapes and conventions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mudd_core.config import TokenFormerConfig
from mudd_core.engine.model import Model
from mudd_core.interop import export_original, load_original
from reference import torch_models as tm
from reference import torch_training as tt
from reference.torch_tokenformer import Tokenformer
from small_models import CASES

Array = np.ndarray[Any, Any]
LAYERS = "decoder/layers/"
SETTINGS = {
    "base_num_query_heads": 4,
    "head_dim": 8,
    "max_target_length": 24,
    "normalize_embedding_logits": True,
}


def numbers(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}


def jax_shapes(bias: bool = False) -> dict[str, tuple[int, ...]]:
    """Return three layers of width 32 with 10 slots (docs/maths/tokenformer.md, 1)."""
    attention = LAYERS + "self_attention/"
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedder/embedding": (61, 32),
        "decoder/decoder_norm/scale": (32,),
        "decoder/decoder_norm/bias": (32,),
        attention + "qkv_key_slot/kernel": (32, 3, 3, 10),
        attention + "proj_key_slot/kernel": (32, 3, 10),
        attention + "proj_value_slot/kernel": (10, 3, 32),
        LAYERS + "mlp/wi/kernel": (32, 3, 40),
        LAYERS + "mlp/wo/kernel": (40, 3, 32),
    }
    for name in "qkv":
        shapes[f"{attention}{name}_value_slot/kernel"] = (10, 3, 32)
        if bias:
            shapes[f"{attention}{name}_value_slot/bias"] = (32, 3)
    if bias:
        shapes[attention + "qkv_key_slot/bias"] = (3, 3, 10)
    return shapes


def jax_batch() -> dict[str, Array]:
    """Return two packed sequences: documents 1, 2, 3 and padding."""
    rng = np.random.default_rng(4)
    segments = np.array([[1] * 9 + [2] * 8 + [0] * 7, [1] * 3 + [2] * 10 + [3] * 11], np.int64)
    starts = [np.concatenate([np.arange(n) for n in counts]) for counts in ((9, 8, 7), (3, 10, 11))]
    return {
        "inputs": rng.integers(0, 61, (2, 24)) * (segments > 0),
        "targets": rng.integers(0, 61, (2, 24)) * (segments > 0),
        "inputs_segmentation": segments,
        "targets_segmentation": np.where(np.arange(24) % 9 == 8, 0, segments),
        "inputs_position": np.array(starts),
    }


def test_the_jax_program() -> None:
    weights, batch = numbers(jax_shapes(bias=True)), jax_batch()
    settings = {**SETTINGS, "qkv_bias": True, "zoom_dim": 5.0, "ffn_scale_factor": 0.8}
    model = load_original("tokenformer_jax", settings, weights)
    assert isinstance(model.config, TokenFormerConfig) and model.config.zoom_dim == 5

    p = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()
    }
    logits = jax_logits(p, batch)
    counted = torch.tensor(batch["targets_segmentation"] != 0)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(batch["targets"]).flatten(), reduction="none"
    )
    total = (losses * counted.flatten()).sum() / (counted.sum() + 1e-8)
    total.backward()
    loss = float(total.detach())

    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(model.logits(batch) - logits.detach().numpy()).max() < 1e-5
    got, gradients = model.loss_and_gradients(batch)
    # PyTorch computes in float32 too, with its sums in another order.
    assert got == pytest.approx(loss, rel=2e-6)
    assert model.loss(batch) == pytest.approx(loss, rel=2e-6)
    assert set(gradients) == set(weights)
    for name, tensor in p.items():
        assert tensor.grad is not None
        want = tensor.grad.numpy()
        assert gradients[name].shape == want.shape
        floor = 1e-4 if name.endswith("k_value_slot/bias") else 0.0  # zero in exact arithmetic
        assert np.abs(gradients[name] - want).max() <= 2e-5 * max(np.abs(want).max(), floor), name


def jax_logits(p: dict[str, torch.Tensor], batch: dict[str, Array]) -> torch.Tensor:
    """Apply the program's formulas to its tensors: stacked layers, keys as [d, slots], one kernel for q, k, v."""

    def theta(a: torch.Tensor, zoom: float) -> torch.Tensor:
        z = zoom**0.5 * a / (a.norm(dim=-1, keepdim=True) + 1e-5)
        return torch.nn.functional.gelu(z, approximate="tanh")

    a = LAYERS + "self_attention/"
    x = p["token_embedder/embedding"][torch.tensor(batch["inputs"])]
    for n in range(3):
        u = torch.nn.functional.layer_norm(x, (32,))
        scores = (
            torch.einsum("btd,dcs->btcs", u, p[a + "qkv_key_slot/kernel"][:, n])
            + p[a + "qkv_key_slot/bias"][:, n]
        )
        heads = []
        for i, name in enumerate("qkv"):
            value, bias = p[f"{a}{name}_value_slot/kernel"][:, n], p[f"{a}{name}_value_slot/bias"][:, n]
            heads.append((theta(scores[:, :, i], 5) @ value + bias).reshape(2, 24, 4, 8))
        seen = tm.make_batch(batch["inputs"], segments=batch["inputs_segmentation"])
        o = tm.causal_attention(*heads, seen)
        x = x + theta(o @ p[a + "proj_key_slot/kernel"][:, n], 5) @ p[a + "proj_value_slot/kernel"][:, n]
        u = torch.nn.functional.layer_norm(x, (32,))
        x = x + 0.8 * theta(u @ p[LAYERS + "mlp/wi/kernel"][:, n], 20) @ p[LAYERS + "mlp/wo/kernel"][:, n]
    gain = 1 + p["decoder/decoder_norm/scale"]
    y = torch.nn.functional.layer_norm(x, (32,), gain, p["decoder/decoder_norm/bias"])
    return y @ p["token_embedder/embedding"].T / 32**0.5


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("tokenformer")])
def test_what_is_exported_loads_again(name: str) -> None:
    ours = CASES[name][0]
    if ours.block == "pattention" and ours.slots("ffn") == 4 * ours.slots("qkv") and ours.slot_eps < 0:
        system = "tokenformer_jax"
    else:
        system = "tokenformer_jax" if ours.block == "dense" else "tokenformer_neox"
    model = Model(ours, seed=5)
    settings, weights = export_original(system, model)
    again = load_original(system, settings, weights)
    for key, value in model.parameters.items():
        assert np.array_equal(again.parameters[key], value), key
    ids = np.arange(20, dtype=np.int32)[None] % 61
    assert np.array_equal(again.logits({"inputs": ids, "targets": ids}), model.logits(ids))
    assert export_original(system, again)[0] == again.original_config


@pytest.mark.parametrize("prefix", ["sequential.", "", "module.sequential."])
def test_the_neox_program(prefix: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}0.word_embeddings.weight": (61, 32),
        f"{prefix}5.norm.weight": (32,),
        f"{prefix}5.norm.bias": (32,),
    }
    for n in (2, 3):
        for part, slots in (("query", 12), ("key", 12), ("value", 12), ("proj", 9)):
            shapes |= {
                f"{prefix}{n}.attention.{part}.{side}_param_tokens": (slots, 32) for side in ("key", "value")
            }
        shapes |= {f"{prefix}{n}.mlp.{side}_param_tokens": (40, 32) for side in ("key", "value")}
    if not prefix:
        shapes = {
            "tied_modules.embed.word_embeddings.weight" if "word_emb" in k else k: v
            for k, v in shapes.items()
        }
    weights = numbers(shapes)
    model = load_original("tokenformer_neox", {"num_attention_heads": 4, "seq_length": 24}, weights)
    rng = np.random.default_rng(3)
    batch = {"inputs": rng.integers(0, 61, (2, 24)), "targets": rng.integers(0, 61, (2, 24))}
    names = {
        "attn.q": "attention.query",
        "attn.k": "attention.key",
        "attn.v": "attention.value",
        "attn.o": "attention.proj",
        "ffn": "mlp",
    }
    ours = {
        f"blocks.{n}.{a}.{side}": weights[f"{prefix}{n + 2}.{b}.{side}_param_tokens"]
        for n in (0, 1)
        for a, b in names.items()
        for side in ("key", "value")
    }
    ours |= {
        "embed": next(v for k, v in weights.items() if "word_emb" in k),
        "final_norm.gain": weights[f"{prefix}5.norm.weight"],
        "final_norm.bias": weights[f"{prefix}5.norm.bias"],
    }
    cfg = Tokenformer(
        61,
        2,
        32,
        4,
        (12, 9, 40),
        24,
        gelu="none",
        eps=0.0,
        positions="rotary",
        gain_offset=0.0,
        divide_logits=False,
    )
    want = tt.loss_and_grads(ours, batch["inputs"], batch["targets"], cfg, dtype=torch.float64)
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(model.logits(batch) - want.logits).max() <= 1e-5 * np.abs(want.logits).max()
    loss, gradients = model.loss_and_gradients(batch)
    # PyTorch computes in float32 too, with its sums in another order.
    assert loss == pytest.approx(want.loss, rel=2e-6)
    assert set(gradients) == set(weights)
    key = f"{prefix}3.mlp.key_param_tokens"
    exact = want.grads["blocks.1.ffn.key"]
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(gradients[key] - exact).max() <= 3e-5 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("tokenformer_jax", {"dropout_rate": 0.1}, "dropout_rate"),
        ("tokenformer_jax", {"scan_layers": False}, "scan_layers"),
        ("tokenformer_neox", {"num_attention_heads": 4}, "word_embeddings.weight"),
    ],
)
def test_what_we_do_not_have_is_refused(system: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_original(system, {**SETTINGS, **settings}, numbers(jax_shapes()))


def test_what_an_original_does_not_have_is_refused() -> None:
    model = Model(CASES["tokenformer_neox"][0])
    with pytest.raises(ValueError, match="positions"):
        export_original("tokenformer_jax", model)
    with pytest.raises(ValueError, match="gelu"):
        export_original("tokenformer_neox", Model(CASES["tokenformer"][0]))
