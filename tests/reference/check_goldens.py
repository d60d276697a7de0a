"""Check the references of this folder against numbers made by the original programs.

    python tests/reference/check_goldens.py FOLDER

FOLDER holds numbers of transformers (`hf`), of the MUDDFormer authors' code (`muddformer`), of the TokenFormer
authors' (`tokenformer`) and of mu-Transformer (`mup`); it is not part of the repository. Prints the largest error of
each quantity beside its tolerance and exits 1 if one is over.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reference import numpy_ops
from reference import torch_models as tm
from reference.torch_mixtral import Mixtral
from reference.torch_muddformer import MuddConfig
from reference.torch_mup import Mup
from reference.torch_tokenformer import DenseBaseline, Tokenformer

Array = NDArray[Any]
failures: list[str] = []


def report(what: str, error: float, tolerance: float) -> None:
    """Print one line; remember it when it is over."""
    bad = not error <= tolerance
    print(f"{'FAIL' if bad else 'ok  '} {what:<34} error {error:.2e}  tolerance {tolerance:.0e}")
    if bad:
        failures.append(what)


def worst_gradient(ours: dict[str, Array], golden: dict[str, Array]) -> float:
    """Largest difference over all tensors, each as a share of the golden tensor's largest entry."""
    if ours.keys() != golden.keys():
        raise SystemExit(f"parameter names differ: {sorted(ours.keys() ^ golden.keys())}")
    return max(float(abs(ours[k] - g).max() / abs(g).max()) for k, g in golden.items())


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
    """transformers' Llama and Mixtral names and [out, in] layouts to ours; experts stacked."""
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


def pick(z: Any, prefix: str) -> dict[str, Array]:
    """The arrays of an npz under a prefix, without it."""
    return {k.removeprefix(prefix): z[k] for k in z.files if k.startswith(prefix)}


def hf_config(c: dict[str, Any]) -> tm.Config:
    """The reference's config of a config.json."""
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
    """Router logits, the experts they choose, and the balance loss."""
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
    """Logits, loss, gradients, three AdamW steps and greedy tokens of a small model of transformers."""
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
    got = tm.loss_and_grads(params, *batches[0], cfg)
    report(f"hf/{name} logits", float(abs(got.logits - z["logits"]).max()), 3e-5)
    report(f"hf/{name} loss", abs(got.loss - float(z["loss"])), 5e-6)
    report(f"hf/{name} gradients", worst_gradient(got.grads, from_hf(pick(z, "grad/"))), 3e-5)
    if isinstance(cfg, Mixtral):
        check_routing(z, params, batches[0][0], cfg)
    for steps in (1, 3):
        after, losses, norms = tm.adamw_steps(params, batches[:steps], cfg, lr=1e-3)
        golden = from_hf(pick(z, f"after{steps}/"))
        error = max(float(abs(after[k] - g).max()) for k, g in golden.items())
        report(f"hf/{name} after {steps} steps", error, 5e-5)
    report(f"hf/{name} losses of 3 steps", float(abs(losses - z["step_losses"]).max()), 5e-6)
    report(f"hf/{name} grad norms", float(abs(norms / z["step_grad_norms"] - 1).max()), 3e-5)
    prompt, sequences = z["gen_prompt"], z["gen_sequences"]
    rest = sequences[:, prompt.shape[1] :]
    wrong = tm.greedy(params, prompt, rest.shape[1], cfg) != rest
    report(f"hf/{name} greedy tokens", float(wrong.sum()), 0.0)


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
    """The authors' tree paths to our names; heads flattened, head turned to [V, D]."""
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
    """Logits, loss and gradients of the MUDDFormer code: its plain Transformer++, or all connections without norms."""
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
    got = tm.loss_and_grads(params, tokens[:, :-1], targets, cfg)
    name = f"muddformer/{path.stem}"
    report(f"{name} logits", float(abs(got.logits - z["logits"]).max()), 5e-5)
    report(f"{name} loss", abs(got.loss - float(z["loss"])), 5e-6)
    report(f"{name} gradients", worst_gradient(got.grads, from_muddformer(pick(z, "g/"))), 2e-4)


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
    """The authors' tree paths to our names; layers unstacked from axis 1, keys turned to [slots, d]."""
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
    """Logits, loss and gradients of TokenFormer or its baseline on packed documents."""
    z = np.load(path, allow_pickle=False)
    params, config = from_tokenformer(pick(z, "w/")), json.loads(str(z["config"]))
    vocab, width = params["embed"].shape
    layers, heads = config["base_num_decoder_layers"], config["base_num_query_heads"]
    cfg: tm.Config = DenseBaseline(vocab, layers, width, heads, config["base_mlp_dim"])
    if "slot_num" in config:
        s = config["slot_num"]
        cfg = Tokenformer(vocab, layers, width, heads, (s, s, 4 * s), config["max_target_length"])
    targets = np.where(z["batch/targets_segmentation"] == 0, -100, z["batch/targets"])
    got = tm.loss_and_grads(params, z["batch/inputs"], targets, cfg, segments=z["batch/inputs_segmentation"])
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


_MUP_PARTS = {
    "attn.q": "w_aq", "attn.k": "w_ak", "attn.v": "w_av", "attn.o": "w_ao", "ffn.up": "w_fi", "ffn.down": "w_fo"
}  # fmt: skip


def from_mup(tensors: dict[str, Array]) -> dict[str, Array]:
    """mu-Transformer's stacked tensors to our names; heads flattened, head turned to [V, D]."""
    ours = {"embed": tensors["w_e"], "head": tensors["w_u"].T}
    for part, theirs in _MUP_PARTS.items():
        for layer, x in enumerate(tensors[theirs]):
            flat = x.reshape(-1, x.shape[-1]) if theirs == "w_ao" else x.reshape(x.shape[0], -1)
            ours[f"blocks.{layer}.{part}.w"] = flat
    return ours


def check_mup(path: Path) -> None:
    """Logits, loss, gradients and three steps with the rates of muP."""
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
        got = tm.loss_and_grads(params, inputs, targets, cfg)
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
            w, m, v = numpy_ops.adamw(
                params[name], *moments[name], g, step + 1, factor * rates[theirs],
                config["optim_beta1"], config["optim_beta2"], config["optim_eps"],
                grad_scale=min(1.0, config["grad_clip"] / norm),
            )  # fmt: skip
            params[name], moments[name] = w.astype(np.float32), (m, v)
        golden = from_mup(pick(z, f"param{step + 1}."))
        error = max(relative(params[name], x) for name, x in golden.items())
        report(f"mup/base_w32 after {step + 1} steps", error, tolerance)


def relative(ours: Array, golden: Array) -> float:
    """Largest difference over the largest entry."""
    return float(abs(ours - golden).max() / abs(golden).max())


def main() -> int:
    """Run every check on the folder named on the command line."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    for name in ("llama_gqa", "mixtral"):
        check_hf(folder / "hf", name)
    check_muddformer(folder / "muddformer/llama_plain.npz")
    check_muddformer(folder / "muddformer/mudd_plain.npz")
    check_tokenformer(folder / "tokenformer/tokenformer_plain.npz")
    check_tokenformer(folder / "tokenformer/gpt2_plain.npz")
    check_mup(folder / "mup/base_w32.npz")
    print("all within tolerance" if not failures else f"{len(failures)} over tolerance")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
