"""Checks against the TokenFormer authors' program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from reference import torch_models as tm
from reference import torch_training as tt
from reference.golden_report import Array, pick, report, worst_gradient
from reference.torch_tokenformer import DenseBaseline, Tokenformer

_DENSE_PARTS = {
    "self_attention/query": "attn.q",
    "self_attention/key": "attn.k",
    "self_attention/value": "attn.v",
    "self_attention/out": "attn.o",
    "mlp/wi": "ffn.up",
    "mlp/wo": "ffn.down",
}


_DENSE_NORMS = {"pre_self_attention_norm": "attn.norm", "mlp/mlp_layer_norm": "ffn.norm"}


_SLOT_PARTS = {
    "self_attention/proj_key_slot": "attn.o.key",
    "self_attention/proj_value_slot": "attn.o.value",
    **{f"self_attention/{m}_value_slot": f"attn.{m}.value" for m in "qkv"},
    "mlp/wi": "ffn.key",
    "mlp/wo": "ffn.value",
}


def from_tokenformer(tensors: dict[str, Array]) -> dict[str, Array]:
    """Convert the authors' tree paths to our names; layers are unstacked from axis 1, keys transposed to [slots, d]."""
    ours = {
        "embed": tensors["token_embedder/embedding"],
        "final_norm.gain": tensors["decoder/decoder_norm/scale"],
        "final_norm.bias": tensors["decoder/decoder_norm/bias"],
    }
    dense = any("/query/" in path for path in tensors)
    for path, x in tensors.items():
        if not path.startswith("decoder/layers/"):
            continue
        module, kind = path.removeprefix("decoder/layers/").rsplit("/", 1)
        for layer in range(x.shape[1]):
            name, part = f"blocks.{layer}.", x[:, layer]
            if module == "self_attention/qkv_key_slot":
                ours |= {f"{name}attn.{m}.key": part[:, i].T for i, m in enumerate("qkv")}
            elif module in _DENSE_NORMS:
                ours[f"{name}{_DENSE_NORMS[module]}.{'gain' if kind == 'scale' else 'bias'}"] = part
            elif dense:
                inputs = part.shape[:-1] if "/out" in module or "mlp" in module else part.shape[:1]
                part = part.ravel() if kind == "bias" else part.reshape(int(np.prod(inputs)), -1)
                ours[f"{name}{_DENSE_PARTS[module]}.{'w' if kind == 'kernel' else 'b'}"] = part
            else:
                target = _SLOT_PARTS[module]
                ours[name + target] = part.T if target.endswith("key") else part
    return ours


def check_tokenformer(path: Path) -> None:
    """Check logits, loss and gradients of TokenFormer or its baseline on packed documents."""
    z = np.load(path, allow_pickle=False)
    params, config = from_tokenformer(pick(z, "w/")), json.loads(str(z["config"]))
    vocab, width = params["embed"].shape
    layers, heads = config["base_num_decoder_layers"], config["base_num_query_heads"]
    cfg: tm.Config = DenseBaseline(vocab, layers, width, heads, config["base_mlp_dim"])
    if "slot_num" in config:
        s = config["slot_num"]
        cfg = Tokenformer(vocab, layers, width, heads, (s, s, 4 * s), config["max_target_length"])
    targets = np.where(z["batch/targets_segmentation"] == 0, -100, z["batch/targets"])
    got = tt.loss_and_grads(params, z["batch/inputs"], targets, cfg, segments=z["batch/inputs_segmentation"])
    name = f"tokenformer/{path.stem}"
    report(f"{name} logits", float(abs(got.logits - z["logits"]).max()), 2e-5)
    report(f"{name} loss", abs(got.loss - float(z["loss"])), 2e-6)
    golden = from_tokenformer(pick(z, "g/"))
    zero = [k for k in golden if k.endswith("attn.k.b")]  # in exact arithmetic
    report(
        f"{name} key biases",
        max([0.0, *(float(abs(got.grads[k] - golden.pop(k)).max()) for k in zero)]),
        1e-7,
    )
    report(
        f"{name} gradients", worst_gradient({k: v for k, v in got.grads.items() if k in golden}, golden), 2e-5
    )
