"""The PyTorch reference models against transformers, and their batch options against single documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from reference import torch_models as tm
from reference import torch_training as tt

LLAMA = tm.LlamaConfig(vocab_size=37, layers=3, d_model=24, heads=6, kv_heads=2, ffn=40)
GPT2 = tm.Gpt2Config(vocab_size=37, layers=3, d_model=24, heads=6, ffn=96, max_positions=16)


def data(cfg: tm.Config, B: int = 2, T: int = 11) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(3)
    targets = rng.integers(0, cfg.vocab_size, (B, T))
    targets[0, 4] = -100
    targets[-1, 0] = -1
    return rng.integers(0, cfg.vocab_size, (B, T)), targets


def hf_llama(cfg: tm.LlamaConfig, params: dict[str, NDArray[Any]]) -> tuple[Any, dict[str, tuple[str, bool]]]:
    """Return transformers' Llama with our weights, and our name -> (its name, transposed)."""
    names = {"embed": ("model.embed_tokens.weight", False), "final_norm.gain": ("model.norm.weight", False)}
    if not cfg.tied:
        names["head"] = ("lm_head.weight", False)
    for n in range(cfg.layers):
        for ours, theirs in (("attn", "self_attn"), ("ffn", "mlp")):
            for w in ("q", "k", "v", "o") if ours == "attn" else ("gate", "up", "down"):
                names[f"blocks.{n}.{ours}.{w}.w"] = (f"model.layers.{n}.{theirs}.{w}_proj.weight", True)
        names[f"blocks.{n}.attn.norm.gain"] = (f"model.layers.{n}.input_layernorm.weight", False)
        names[f"blocks.{n}.ffn.norm.gain"] = (f"model.layers.{n}.post_attention_layernorm.weight", False)
    config = transformers.LlamaConfig(
        vocab_size=cfg.vocab_size,
        hidden_size=cfg.d_model,
        intermediate_size=cfg.ffn,
        num_hidden_layers=cfg.layers,
        num_attention_heads=cfg.heads,
        num_key_value_heads=cfg.kv_heads,
        rms_norm_eps=cfg.norm_eps,
        tie_word_embeddings=cfg.tied,
        attn_implementation="eager",  # type: ignore[call-arg]
    )
    model = transformers.LlamaForCausalLM(config)
    load(model, params, names)
    return model, names


def hf_gpt2(cfg: tm.Gpt2Config, params: dict[str, NDArray[Any]]) -> tuple[Any, dict[str, tuple[str, bool]]]:
    """Return transformers' GPT-2 with our weights; its Conv1D is [in, out] like our matrices, with q, k, v joined."""
    config = transformers.GPT2Config(
        vocab_size=cfg.vocab_size,
        n_positions=cfg.max_positions,
        n_embd=cfg.d_model,
        n_layer=cfg.layers,
        n_head=cfg.heads,
        n_inner=cfg.ffn,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="eager",  # type: ignore[call-arg]
    )
    model = transformers.GPT2LMHeadModel(config)
    names = {"embed": ("transformer.wte.weight", False), "pos_embed": ("transformer.wpe.weight", False)}
    joined = dict(params)
    for n in range(cfg.layers):
        block = f"transformer.h.{n}."
        for kind, theirs in (("w", "weight"), ("b", "bias")):
            parts = [params[f"blocks.{n}.attn.{m}.{kind}"] for m in "qkv"]
            joined[f"qkv.{n}.{kind}"] = np.concatenate(parts, -1)
            names[f"qkv.{n}.{kind}"] = (f"{block}attn.c_attn.{theirs}", False)
            names[f"blocks.{n}.attn.o.{kind}"] = (f"{block}attn.c_proj.{theirs}", False)
            names[f"blocks.{n}.ffn.up.{kind}"] = (f"{block}mlp.c_fc.{theirs}", False)
            names[f"blocks.{n}.ffn.down.{kind}"] = (f"{block}mlp.c_proj.{theirs}", False)
        for ours, ln in (("attn", "ln_1"), ("ffn", "ln_2")):
            names[f"blocks.{n}.{ours}.norm.gain"] = (f"{block}{ln}.weight", False)
            names[f"blocks.{n}.{ours}.norm.bias"] = (f"{block}{ln}.bias", False)
    names["final_norm.gain"] = ("transformer.ln_f.weight", False)
    names["final_norm.bias"] = ("transformer.ln_f.bias", False)
    load(model, joined, names)
    return model, names


def load(model: Any, params: dict[str, NDArray[Any]], names: dict[str, tuple[str, bool]]) -> None:
    theirs = dict(model.named_parameters())
    assert {n for n, _ in names.values()} == set(theirs), "every parameter of the model is set"
    with torch.no_grad():
        for ours, (name, transposed) in names.items():
            value = torch.tensor(params[ours])
            theirs[name].copy_(value.T if transposed else value)


def hf_result(model: Any, tokens: NDArray[Any], targets: NDArray[Any]) -> tuple[Any, float, dict[str, Any]]:
    model.eval()
    logits = model(torch.from_numpy(tokens)).logits
    loss = tt.mean_loss(logits, torch.from_numpy(targets))
    loss.backward()  # type: ignore[no-untyped-call]
    return logits.detach().numpy(), loss.item(), {k: p.grad.numpy() for k, p in model.named_parameters()}


def split_qkv(grads: dict[str, NDArray[Any]], cfg: tm.Gpt2Config) -> dict[str, NDArray[Any]]:
    """Return our q, k, v gradients joined as GPT-2 stores them."""
    out = dict(grads)
    for n in range(cfg.layers):
        for kind in ("w", "b"):
            out[f"qkv.{n}.{kind}"] = np.concatenate([grads[f"blocks.{n}.attn.{m}.{kind}"] for m in "qkv"], -1)
    return out


@pytest.mark.parametrize(
    "cfg", [LLAMA, tm.LlamaConfig(37, 2, 24, 3, 3, 40, tied=True), GPT2], ids=["gqa", "tied", "gpt2"]
)
def test_matches_transformers(cfg: tm.Config) -> None:
    params = tm.random_params(cfg, seed=1)
    tokens, targets = data(cfg)
    ours = tt.loss_and_grads(params, tokens, targets, cfg)
    model, names = hf_gpt2(cfg, params) if isinstance(cfg, tm.Gpt2Config) else hf_llama(cfg, params)
    logits, loss, grads = hf_result(model, tokens, targets)
    # PyTorch computes in float32 too, with its sums in another order.
    np.testing.assert_allclose(ours.logits, logits, rtol=0, atol=3e-5)
    assert abs(ours.loss - loss) < 5e-6
    mine = split_qkv(ours.grads, cfg) if isinstance(cfg, tm.Gpt2Config) else ours.grads
    for name, (theirs, transposed) in names.items():
        want = grads[theirs].T if transposed else grads[theirs]
        # PyTorch computes in float32 too, with its sums in another order.
        np.testing.assert_allclose(mine[name], want, rtol=0, atol=3e-5 * abs(want).max(), err_msg=name)


@pytest.mark.parametrize("cfg", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_segments_are_separate_documents(cfg: tm.Config) -> None:
    """Two documents packed with segments and restarted positions have the logits of each document alone."""
    params = tm.random_params(cfg, seed=2)
    tokens, targets = data(cfg, B=1, T=11)
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]])
    segments = np.array([[1] * 4 + [2] * 7])
    packed = tt.loss_and_grads(params, tokens, targets, cfg, positions=positions, segments=segments).logits
    for part in (slice(0, 4), slice(4, 11)):
        alone = tt.loss_and_grads(params, tokens[:, part], targets[:, part], cfg).logits
        # float32 on both sides, with the sums in another order.
        np.testing.assert_allclose(packed[:, part], alone, rtol=0, atol=1e-5)


def test_key_mask_hides_padding() -> None:
    """Left padding with a key mask and shifted positions leaves the logits of the real tokens unchanged."""
    params = tm.random_params(LLAMA, seed=2)
    tokens, targets = data(LLAMA, B=1, T=8)
    padded = np.concatenate([np.full((1, 3), 5), tokens], 1)
    ignored = np.concatenate([np.full((1, 3), -100), targets], 1)
    mask = np.array([[0] * 3 + [1] * 8])
    positions = np.array([[0] * 3 + list(range(8))])
    got = tt.loss_and_grads(params, padded, ignored, LLAMA, positions=positions, key_mask=mask)
    want = tt.loss_and_grads(params, tokens, targets, LLAMA)
    # float32 on both sides, with the sums in another order.
    np.testing.assert_allclose(got.logits[:, 3:], want.logits, rtol=0, atol=1e-5)
    for name, grad in want.grads.items():
        # float32 on both sides, with the sums in another order.
        np.testing.assert_allclose(got.grads[name], grad, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("cfg", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_double_precision_derivative(cfg: tm.Config) -> None:
    """The gradient in float64 equals a central difference in a random direction."""
    params = {k: v.astype(np.float64) for k, v in tm.random_params(cfg, seed=5).items()}
    tokens, targets = data(cfg)
    rng = np.random.default_rng(0)
    direction = {k: rng.normal(size=v.shape) for k, v in sorted(params.items())}
    grads = tt.loss_and_grads(params, tokens, targets, cfg, dtype=torch.float64).grads
    slope = sum(float((grads[k] * direction[k]).sum()) for k in params)
    h = 1e-6

    def loss(step: float) -> float:
        moved = {k: v + step * direction[k] for k, v in params.items()}
        return tt.loss_and_grads(moved, tokens, targets, cfg, dtype=torch.float64).loss

    # A difference quotient in float64.
    assert abs((loss(h) - loss(-h)) / (2 * h) / slope - 1) < 1e-6
