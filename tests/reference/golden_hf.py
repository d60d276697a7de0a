"""Checks against the Llama and the Mixtral of transformers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reference import torch_models as tm
from reference import torch_training as tt
from reference.golden_report import Array, pick, report, worst_gradient
from reference.torch_mixtral import Mixtral

_HF_PARTS = {
    "self_attn.q_proj.weight": "attn.q.w",
    "self_attn.k_proj.weight": "attn.k.w",
    "self_attn.v_proj.weight": "attn.v.w",
    "self_attn.o_proj.weight": "attn.o.w",
    "mlp.gate_proj.weight": "ffn.gate.w",
    "mlp.up_proj.weight": "ffn.up.w",
    "mlp.down_proj.weight": "ffn.down.w",
    "block_sparse_moe.gate.weight": "ffn.router.w",
    "input_layernorm.weight": "attn.norm.gain",
    "post_attention_layernorm.weight": "ffn.norm.gain",
}


_HF_TOP = {
    "model.embed_tokens.weight": "embed",
    "model.norm.weight": "final_norm.gain",
    "lm_head.weight": "head",
}


_HF_EXPERTS = {"w1": "gate", "w3": "up", "w2": "down"}


def from_hf(tensors: dict[str, Array]) -> dict[str, Array]:
    """Convert transformers' Llama and Mixtral names and [out, in] layouts to ours; experts are stacked."""
    ours: dict[str, Any] = {}
    for name, x in tensors.items():
        if name in _HF_TOP:
            ours[_HF_TOP[name]] = x
            continue
        layer, part = name.removeprefix("model.layers.").split(".", 1)
        expert = re.fullmatch(r"block_sparse_moe\.experts\.(\d+)\.(w\d)\.weight", part)
        if expert:
            stack = ours.setdefault(f"blocks.{layer}.ffn.{_HF_EXPERTS[expert[2]]}.w", {})
            stack[int(expert[1])] = x.T
        else:
            ours[f"blocks.{layer}.{_HF_PARTS[part]}"] = x if x.ndim == 1 else x.T
    return {k: np.stack([x[e] for e in sorted(x)]) if isinstance(x, dict) else x for k, x in ours.items()}


def hf_config(c: dict[str, Any]) -> tm.Config:
    """Return the reference's config for a config.json."""
    sizes = (
        c["vocab_size"],
        c["num_hidden_layers"],
        c["hidden_size"],
        c["num_attention_heads"],
        c["num_key_value_heads"],
        c["intermediate_size"],
    )
    common = {"norm_eps": c["rms_norm_eps"], "rope_base": c["rope_parameters"]["rope_theta"]}
    if c["model_type"] == "mixtral":
        return Mixtral(
            *sizes,
            **common,
            experts=c["num_local_experts"],
            top_k=c["num_experts_per_tok"],
            aux_coef=c["router_aux_loss_coef"],
        )
    return tm.LlamaConfig(*sizes, **common, tied=c["tie_word_embeddings"])


def check_routing(z: Any, params: dict[str, Array], tokens: Array, cfg: Mixtral) -> None:
    """Check router logits, the chosen experts, and the balance loss."""
    p = {k: torch.tensor(v) for k, v in params.items()}
    _, routings = cfg.route(p, tm.make_batch(tokens))
    got = torch.stack([r.z.flatten(0, 1) for r in routings]).numpy()
    report("hf/mixtral router logits", float(abs(got - z["router_logits"]).max()), 3e-5)
    chosen = torch.stack([r.chosen.flatten(0, 1) for r in routings]).numpy()
    want = np.argsort(-z["router_logits"], -1, kind="stable")[..., : cfg.top_k]
    report("hf/mixtral routing", float((chosen != want).sum()), 0.0)
    aux = float(cfg.aux_loss(routings, tm.make_batch(tokens))) / cfg.aux_coef
    report("hf/mixtral balance loss", abs(aux - float(z["aux_loss"])), 1e-6)


def check_hf(folder: Path, name: str) -> None:
    """Check logits, loss, gradients, three AdamW steps and greedy tokens of a small model of transformers."""
    from safetensors.numpy import load_file

    cfg = hf_config(json.loads((folder / name / "config.json").read_text()))
    z = np.load(folder / f"{name}.npz", allow_pickle=False)
    params = from_hf(load_file(folder / name / "model.safetensors"))
    batches = []
    for tokens, labels in zip(z["tokens"], z["labels"], strict=True):
        # transformers shifts inside the model: the label of a position is the next entry.
        targets = np.full_like(labels, -100)
        targets[:, :-1] = labels[:, 1:]
        batches.append((tokens, targets))
    assert (z["attention_mask"] == 1).all()
    got = tt.loss_and_grads(params, *batches[0], cfg)
    report(f"hf/{name} logits", float(abs(got.logits - z["logits"]).max()), 3e-5)
    report(f"hf/{name} loss", abs(got.loss - float(z["loss"])), 5e-6)
    report(f"hf/{name} gradients", worst_gradient(got.grads, from_hf(pick(z, "grad/"))), 3e-5)
    if isinstance(cfg, Mixtral):
        check_routing(z, params, batches[0][0], cfg)
    for steps in (1, 3):
        after, losses, norms = tt.adamw_steps(params, batches[:steps], cfg, lr=1e-3)
        golden = from_hf(pick(z, f"after{steps}/"))
        error = max(float(abs(after[k] - g).max()) for k, g in golden.items())
        report(f"hf/{name} after {steps} steps", error, 5e-5)
    report(f"hf/{name} losses of 3 steps", float(abs(losses - z["step_losses"]).max()), 5e-6)
    report(f"hf/{name} grad norms", float(abs(norms / z["step_grad_norms"] - 1).max()), 3e-5)
    prompt, sequences = z["gen_prompt"], z["gen_sequences"]
    rest = sequences[:, prompt.shape[1] :]
    wrong = tt.greedy(params, prompt, rest.shape[1], cfg) != rest
    report(f"hf/{name} greedy tokens", float(wrong.sum()), 0.0)
