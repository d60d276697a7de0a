"""The TokenFormer authors' two programs computed from their tensors (docs/maths/tokenformer.md), for interop tests."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from reference import torch_models as tm
from reference.torch_tokenformer import sinusoids

Shapes = dict[str, tuple[int, ...]]
LAYERS = "decoder/layers/"
A = LAYERS + "self_attention/"
V, D, H, L, S = 61, 32, 4, 2, 10
_EPS = {"l2_norm_gelu": 1e-5, "l2_norm": 1e-8, "gelu_l2_norm": 1e-8}


def theta(a: torch.Tensor, kind: str, tau: float, *, jax: bool) -> torch.Tensor:
    """Return Theta of the scores: tanh gelu and an eps in the norm (jax), or erf and no eps."""

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh" if jax else "none")

    def unit(x: torch.Tensor) -> torch.Tensor:
        return tau * x / (x.norm(dim=-1, keepdim=True) + (_EPS[kind] if jax else 0.0))

    if kind == "softmax":
        return a.shape[-1] * a.softmax(-1)
    if kind == "gelu_layer_norm":
        return F.layer_norm(gelu(a), a.shape[-1:], eps=1e-6)
    if kind == "gelu":
        return gelu(a)
    if kind == "l2_norm":
        return unit(a)
    return unit(gelu(a)) if kind == "gelu_l2_norm" else gelu(unit(a))


def jax_shapes(config: dict[str, Any]) -> Shapes:
    """Return the shapes of the JAX program's tensors by path, with layers along axis 1."""
    s: Shapes = {"token_embedder/embedding": (V, D), "decoder/decoder_norm/scale": (D,)}
    s["decoder/decoder_norm/bias"] = (D,)
    if not config.get("logits_via_embedding", False):
        s["decoder/logits_dense/kernel"] = (D, V)
    if config.get("trainable_position_size", -1) > 0:
        s["decoder/position_embedder/embedding"] = (config["trainable_position_size"], D)
    s[A + "qkv_key_slot/kernel"] = (D, L, 3, S)
    s |= {f"{A}{c}_value_slot/kernel": (S, L, D) for c in "qkv"}
    s |= {A + "proj_key_slot/kernel": (D, L, S), A + "proj_value_slot/kernel": (S, L, D)}
    s |= {LAYERS + "mlp/wi/kernel": (D, L, 4 * S), LAYERS + "mlp/wo/kernel": (4 * S, L, D)}
    if config.get("qkv_bias"):
        s |= {A + "qkv_key_slot/bias": (3, L, S)} | {f"{A}{c}_value_slot/bias": (D, L) for c in "qkv"}
    if config.get("proj_bias"):
        s |= {A + "proj_key_slot/bias": (S, L), A + "proj_value_slot/bias": (D, L)}
    if config.get("ffn_bias"):
        s |= {LAYERS + "mlp/wi/bias": (4 * S, L), LAYERS + "mlp/wo/bias": (D, L)}
    return s


def jax_logits(config: dict[str, Any], w: dict[str, torch.Tensor], batch: dict[str, Any]) -> torch.Tensor:
    """Compute logits [B, T, V] from inputs, inputs_position and inputs_segmentation."""
    kind, zoom = config.get("normalize_type", "l2_norm_gelu"), config.get("zoom_dim", 0)

    def dense(x: torch.Tensor, name: str, at: int) -> torch.Tensor:
        y = torch.tensordot(x, w[f"{name}/kernel"][:, at], 1)
        return y + w[f"{name}/bias"][:, at] if f"{name}/bias" in w else y

    def act(a: torch.Tensor, group: str) -> torch.Tensor:
        tau = math.sqrt(zoom * (4 if group == "ffn" else 1) or a.shape[-1])
        return config.get(f"{group}_scale_factor", 1.0) * theta(a, kind, tau, jax=True)

    ids, positions = torch.tensor(batch["inputs"]), torch.tensor(batch["inputs_position"])
    x = w["token_embedder/embedding"][ids]
    if config.get("use_untrainable_positional_embedding"):
        x = x + sinusoids(positions, D)
    if config.get("trainable_position_size", -1) > 0:
        x = x + w["decoder/position_embedder/embedding"][positions]
    seen = tm.make_batch(batch["inputs"], segments=batch["inputs_segmentation"])
    for n in range(L):
        scores = torch.einsum("btd,dcs->btcs", F.layer_norm(x, (D,)), w[A + "qkv_key_slot/kernel"][:, n])
        if config.get("qkv_bias"):
            scores = scores + w[A + "qkv_key_slot/bias"][:, n]
        q, k, v = (
            dense(act(scores[:, :, i], "qkv"), f"{A}{c}_value_slot", n).unflatten(-1, (H, -1))
            for i, c in enumerate("qkv")
        )
        o = tm.causal_attention(q, k, v, seen)
        x = x + dense(act(dense(o, A + "proj_key_slot", n), "proj"), A + "proj_value_slot", n)
        f = act(dense(F.layer_norm(x, (D,)), LAYERS + "mlp/wi", n), "ffn")
        x = x + dense(f, LAYERS + "mlp/wo", n)
    y = F.layer_norm(x, (D,), 1 + w["decoder/decoder_norm/scale"], w["decoder/decoder_norm/bias"])
    if not config.get("logits_via_embedding", False):
        return y @ w["decoder/logits_dense/kernel"]
    return (
        y
        @ w["token_embedder/embedding"].T
        / (math.sqrt(D) if config.get("normalize_embedding_logits", True) else 1.0)
    )


def neox_shapes(config: dict[str, Any]) -> Shapes:
    """Return the shapes of the NeoX program's tensors by the number of their module."""
    layers = config["num_layers"]
    s: Shapes = {"sequential.0.word_embeddings.weight": (V, D)}
    if config["pos_emb"] == "learned":
        s["sequential.0.position_embeddings.weight"] = (config["max_position_embeddings"], D)
    for n in range(2, layers + 2):
        slots = {f"attention.{c}": config["qkv_slot_num"] for c in ("query", "key", "value")}
        slots |= {"attention.proj": config["proj_slot_num"], "mlp": config["ffn_slot_num"]}
        for part, count in slots.items():
            s |= {f"sequential.{n}.{part}.{side}_param_tokens": (count, D) for side in ("key", "value")}
    s |= {f"sequential.{layers + 3}.norm.{x}": (D,) for x in ("weight", "bias")}
    if config["no_weight_tying"]:
        s[f"sequential.{layers + 4}.final_linear.weight"] = (V, D)
    return s


def neox_logits(config: dict[str, Any], w: dict[str, torch.Tensor], ids: Any) -> torch.Tensor:
    """Compute logits [B, T, V]."""
    layers, heads, kind = config["num_layers"], config["num_attention_heads"], config["norm_activation_type"]
    batch = tm.make_batch(ids)
    positions = torch.arange(ids.shape[1])[None].expand_as(batch.tokens)
    turned = int(D // heads * config["rotary_pct"]) if config["pos_emb"] == "rotary" else 0

    def attend(x: torch.Tensor, name: str) -> torch.Tensor:
        keys, values = w[f"{name}.key_param_tokens"], w[f"{name}.value_param_tokens"]
        return theta(x @ keys.T, kind, math.sqrt(keys.shape[0]), jax=False) @ values

    def rotated(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([tm.rope(x[..., :turned], positions, 10000.0), x[..., turned:]], -1) if turned else x

    x = w["sequential.0.word_embeddings.weight"][batch.tokens]
    if config["pos_emb"] == "learned":
        x = x + w["sequential.0.position_embeddings.weight"][positions]
    for n in range(2, layers + 2):
        b, u = f"sequential.{n}.", F.layer_norm(x, (D,))
        q, k, v = (
            attend(u, f"{b}attention.{c}").unflatten(-1, (heads, -1)) for c in ("query", "key", "value")
        )
        x = x + attend(tm.causal_attention(rotated(q), rotated(k), v, batch), b + "attention.proj")
        x = x + attend(F.layer_norm(x, (D,)), b + "mlp")
    norm = f"sequential.{layers + 3}.norm."
    y = F.layer_norm(x, (D,), w[norm + "weight"], w[norm + "bias"])
    return (
        y @ w.get(f"sequential.{layers + 4}.final_linear.weight", w["sequential.0.word_embeddings.weight"]).T
    )
