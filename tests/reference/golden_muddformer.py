"""Checks against the MUDDFormer authors' program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reference import torch_models as tm
from reference import torch_training as tt
from reference.golden_report import Array, pick, report, worst_gradient
from reference.torch_muddformer import MuddConfig

_MUDD_PARTS = {
    "self_attention/query/kernel": "attn.q.w",
    "self_attention/key/kernel": "attn.k.w",
    "self_attention/value/kernel": "attn.v.w",
    "self_attention/out/kernel": "attn.o.w",
    "mlp/wi_0/kernel": "ffn.gate.w",
    "mlp/wi_1/kernel": "ffn.up.w",
    "mlp/wo/kernel": "ffn.down.w",
    "pre_self_attention_layer_norm/scale": "attn.norm.gain",
    "post_self_attention_layer_norm/scale": "ffn.norm.gain",
    **{f"pre_self_attention_layer_norm_{c}/scale": f"attn.norm_{c}.gain" for c in "qkv"},
    "dynamic_dense_conn1/kernel": "mix.w1",
    "dynamic_dense_conn2/kernel": "mix.w2",
    "dense_proj2.bias": "mix.bias",
}


def from_muddformer(tensors: dict[str, Array]) -> dict[str, Array]:
    """Convert the authors' tree paths to our names; heads are flattened, the head is transposed to [V, D]."""
    ours = {}
    for path, x in tensors.items():
        if path == "token_embedder/embedding":
            ours["embed"] = x
        elif path == "decoder/decoder_norm/scale":
            ours["final_norm.gain"] = x
        elif path == "decoder/logits_dense/kernel":
            ours["head"] = x.T
        else:
            layer, part = path.removeprefix("decoder/layers_").split("/", 1)
            if part.startswith("self_attention"):
                x = x.reshape(-1, x.shape[-1]) if "/out/" in part else x.reshape(x.shape[0], -1)
            elif part.startswith("dynamic"):
                x = x.reshape(x.shape[0], -1)
            ours[f"blocks.{layer}.{_MUDD_PARTS[part]}"] = x
    return ours


def check_muddformer(path: Path) -> None:
    """Check logits, loss and gradients of the MUDDFormer code: its Transformer++, or all connections without norms."""
    z = np.load(path, allow_pickle=False)
    params = from_muddformer(pick(z, "w/"))
    _, heads, _ = z["w/decoder/layers_0/self_attention/query/kernel"].shape
    groups = z["w/decoder/layers_0/self_attention/key/kernel"].shape[1]
    layers = sum(k.endswith("attn.q.w") for k in params)
    vocab, width = params["embed"].shape
    inner = tuple(params[f"blocks.{n}.ffn.up.w"].shape[1] for n in range(layers))
    cfg: tm.Config = tm.LlamaConfig(vocab, layers, width, heads, groups, inner[0])
    if "blocks.0.mix.w1" in params:
        hidden = tuple(params[f"blocks.{n}.mix.w1"].shape[1] for n in range(layers))
        sources = tuple(tuple(range(n + 2)) for n in range(layers))
        cfg = MuddConfig(vocab, layers, width, heads, groups, inner, hidden, sources)
    tokens = z["tokens"]
    targets = np.where(tokens[:, 1:] == 0, -100, tokens[:, 1:])
    got = tt.loss_and_grads(params, tokens[:, :-1], targets, cfg)
    name = f"muddformer/{path.stem}"
    report(f"{name} logits", float(abs(got.logits - z["logits"]).max()), 5e-5)
    report(f"{name} loss", abs(got.loss - float(z["loss"])), 5e-6)
    report(f"{name} gradients", worst_gradient(got.grads, from_muddformer(pick(z, "g/"))), 2e-4)
