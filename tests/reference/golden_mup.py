"""Checks against the program mu-Transformer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from reference import torch_training as tt
from reference.golden_report import Array, pick, relative, report, worst_gradient
from reference.numpy_updates import adamw
from reference.torch_mup import Mup

_MUP_PARTS = {
    "attn.q": "w_aq",
    "attn.k": "w_ak",
    "attn.v": "w_av",
    "attn.o": "w_ao",
    "ffn.up": "w_fi",
    "ffn.down": "w_fo",
}


def from_mup(tensors: dict[str, Array]) -> dict[str, Array]:
    """Convert mu-Transformer's stacked tensors to our names; heads are flattened, the head is transposed to [V, D]."""
    ours = {"embed": tensors["w_e"], "head": tensors["w_u"].T}
    for part, theirs in _MUP_PARTS.items():
        for layer, x in enumerate(tensors[theirs]):
            flat = x.reshape(-1, x.shape[-1]) if theirs == "w_ao" else x.reshape(x.shape[0], -1)
            ours[f"blocks.{layer}.{part}.w"] = flat
    return ours


def check_mup(path: Path) -> None:
    """Check logits, loss, gradients and three steps with the rates of muP."""
    z, tolerance = np.load(path, allow_pickle=False), 1e-5
    config, rates = json.loads(str(z["config"])), json.loads(str(z["lr_by_name"]))
    params = from_mup(pick(z, "param0."))
    heads, window = config["d_model"] // config["d_head"], config["sequence_len"]
    inner = params["blocks.0.ffn.up.w"].shape[1]
    cfg = Mup(
        config["n_vocab"], config["n_layer"], config["d_model"], heads, inner, config["qk_scale"], window
    )
    moments = {name: (np.zeros_like(x), np.zeros_like(x)) for name, x in params.items()}
    for step, rows in enumerate(z["batches"]):
        inputs = np.concatenate([np.full((len(rows), 1), config["bos_token_id"]), rows[:, :-1]], 1)
        ends = np.isin(rows, (config["eos_token_id"], config["pad_token_id"])).cumsum(1)
        targets = np.where(np.pad(ends[:, :-1], ((0, 0), (1, 0))) > 0, -100, rows)
        got = tt.loss_and_grads(params, inputs, targets, cfg)
        share = float((targets >= 0).mean())  # the original divides by all slots
        grads = {name: g * share for name, g in got.grads.items()}
        if step == 0:
            report("mup/base_w32 logits", relative(got.logits, z["logits0"]), tolerance)
            report("mup/base_w32 loss", abs(got.loss * share - float(z["loss0"])), tolerance)
            report("mup/base_w32 gradients", worst_gradient(grads, from_mup(pick(z, "grad0."))), tolerance)
        norm = float(np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads.values())))
        factor = float(z["schedule"][step])
        for name, g in grads.items():
            theirs = {"embed": "w_e", "head": "w_u"}.get(name) or _MUP_PARTS[".".join(name.split(".")[2:4])]
            w, m, v = adamw(
                params[name],
                *moments[name],
                g,
                step + 1,
                factor * rates[theirs],
                config["optim_beta1"],
                config["optim_beta2"],
                config["optim_eps"],
                grad_scale=min(1.0, config["grad_clip"] / norm),
            )
            params[name], moments[name] = w.astype(np.float32), (m, v)
        golden = from_mup(pick(z, f"param{step + 1}."))
        error = max(relative(params[name], x) for name, x in golden.items())
        report(f"mup/base_w32 after {step + 1} steps", error, tolerance)
