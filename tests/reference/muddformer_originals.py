"""Small made-up weights under the names of the MUDDFormer authors' programs, for the interop tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from reference import torch_models as tm

Array = NDArray[Any]
V, D, H, L = 61, 32, 4, 3
INNER = (128, 256, 384)  # of d_ff 256 over three blocks
HIDDEN = (64, 64, 64)

JAX_PLAIN: dict[str, Any] = {
    "emb_dim": D,
    "num_query_heads": H,
    "num_kv_heads": 2,
    "head_dim": 8,
    "mlp_dim": 256,
    "num_decoder_layers": L,
    "vocab_size": V,
    "max_target_length": 25,
    "normalization_layer_epsilon": 1e-6,
    "rope_max_timescale": 10000,
    "dense_conn": False,
    "mlp_activations": ["silu", "linear"],
    "logits_via_embedding": False,
}
JAX_MUDD: dict[str, Any] = {
    **JAX_PLAIN,
    "dense_conn": True,
    "dynamic_dense_type": "qkvm",
    "dynamic_dense_act_cls": "gelu",
    "dynamic_dense_fix_last_layer": True,
    "dynamic_dense_hidden_expand": [1, 1, 4],
    "dynamic_dense_hidden_round": True,
    "ddw_gen_pattern": "q,k,v,m",
    "mudd_prenorm": False,
    "mudd_postnorm": False,
    "dynamic_mlp_dim": True,
}
TORCH_MUDD: dict[str, Any] = {
    "block_size": 24,
    "vocab_size": V,
    "n_layer": L,
    "n_head": H,
    "n_local_heads": 2,
    "dim": D,
    "intermediate_size": 256,
    "norm_eps": 1e-6,
    "use_qk_norm": True,
    "dense": True,
    "dynamic_dense": True,
    "sepln": True,
    "dense_type": "qkvr",
    "expand_last": True,
    "round64": True,
}
TORCH_PLAIN: dict[str, Any] = {**TORCH_MUDD, "dense": False, "sepln": False}
TORCH_PYTHIA: dict[str, Any] = {
    **TORCH_MUDD,
    "n_local_heads": H,
    "norm_eps": 1e-5,
    "dense_type": "qkvm",
    "rotary_pct": 0.25,
    "use_parallel_residual": True,
    "use_linear_bias": True,
}


def filled(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """Return normal values; gains around one, and the newest state's constant weight near one."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape in sorted(shapes.items()):
        x = rng.normal(0, 0.1, shape)
        if "norm" in name and not name.endswith("bias"):
            x += 1
        if "dense_bs" in name or "dense_proj2" in name:
            x[:, -1] += 1
        out[name] = x.astype(np.float32)
    return out


def jax_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the JAX program's tensors by path."""
    dense, groups, head = config["dense_conn"], config["num_kv_heads"], config["head_dim"]
    s: dict[str, tuple[int, ...]] = {"token_embedder/embedding": (V, D), "decoder/decoder_norm/scale": (D,)}
    if not config["logits_via_embedding"]:
        s["decoder/logits_dense/kernel"] = (D, V)
    expand = config.get("dynamic_dense_hidden_expand")
    expand = [expand] * L if isinstance(expand, int) else expand
    post = config.get("mudd_postnorm") and config["ddw_gen_pattern"] == "q,k,v,m"
    if config.get("mudd_prenorm"):
        s["decoder/mudd_prenorm/scale"] = (D,)
    for n in range(L):
        b = f"decoder/layers_{n}/"
        inner = INNER[n] if config.get("dynamic_mlp_dim") else 256
        s[b + "self_attention/query/kernel"] = (D, H, head)
        s[b + "self_attention/key/kernel"] = s[b + "self_attention/value/kernel"] = (D, groups, head)
        s[b + "self_attention/out/kernel"] = (H, head, D)
        s[b + "mlp/wi_0/kernel"] = s[b + "mlp/wi_1/kernel"] = (D, inner)
        s[b + "mlp/wo/kernel"] = (inner, D)
        s[b + "post_self_attention_layer_norm/scale"] = (D,)
        for c in ("_q", "_k", "_v") if dense else ("",):
            s[f"{b}pre_self_attention_layer_norm{c}/scale"] = (D,)
        if not dense:
            continue
        count = 1 if n == L - 1 and config["dynamic_dense_fix_last_layer"] else 4
        hidden = int(count * (n + 2) * expand[n])
        hidden = (hidden // 64 + 1) * 64 if config["dynamic_dense_hidden_round"] else hidden
        s[b + "dynamic_dense_conn1/kernel"] = (D, hidden)
        s[b + "dynamic_dense_conn2/kernel"] = (hidden, count, n + 2)
        s[b + "dense_proj2.bias"] = (count, n + 2)
        if config["mudd_prenorm"]:
            s[b + "pre_dense_proj1_norm/scale"] = s[f"decoder/mudd_prenorm_{n}/scale"] = (D,)
        if post:
            s[f"decoder/mudd_postnorm_{n}/scale"] = (D,)
    return s


def torch_shapes(config: dict[str, Any], *, pythia: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the PyTorch program's shapes by name; even without connections it has dense_bs and dynamic_dense."""
    dense, kv = config["dense"], config["n_local_heads"] * 8
    s: dict[str, tuple[int, ...]] = {
        "tok_embeddings.weight": (V, D),
        "norm.weight": (D,),
        "output.weight": (V, D),
    }
    for n in range(L):
        b, inner = f"layers.{n}.", INNER[n]
        products = {"wo": (D, D)}
        products |= {"wq": (D, D), "wk": (kv, D), "wv": (kv, D)} if dense else {"wqkv": (D + 2 * kv, D)}
        s |= {f"{b}attention.{name}.weight": shape for name, shape in products.items()}
        s |= {f"{b}feed_forward.w{i}.weight": (inner, D) for i in ((1,) if pythia else (1, 3))}
        s |= {f"{b}feed_forward.w2.weight": (D, inner), b + "ffn_norm.weight": (D,)}
        s |= {f"{b}attention.{c}_norm.weight": (8,) for c in "qk"}
        norms = [f"attention_norms.{i}" for i in range(3)] if dense and n else ["attention_norm"]
        s |= {f"{b}{norm}.weight": (D,) for norm in norms}
        count = 1 if n == L - 1 else 4
        s |= {f"dense_bs.{n}": (count, n + 2), f"dynamic_dense.{n}.w1.weight": (HIDDEN[n], D)}
        s[f"dynamic_dense.{n}.w2.weight"] = (count * (n + 2), HIDDEN[n])
    if pythia:
        weights = {k: v for k, v in s.items() if k.endswith(".weight")}
        for name, shape in weights.items():
            if (
                not name.startswith(("tok_", "output", "dynamic"))
                and ".q_norm" not in name
                and ".k_norm" not in name
            ):
                s[name.replace(".weight", ".bias")] = shape[:1]
    return s


def jax_logits(config: dict[str, Any], w: dict[str, torch.Tensor], ids: Array) -> torch.Tensor:
    """Compute logits [B, T, V] from the JAX program's tensors with the equations of docs/maths/muddformer.md."""
    dense, one = config["dense_conn"], torch.ones((), dtype=torch.float64)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return tm.rms_norm(x, w[f"{name}/scale"] if name else one, 1e-6)

    def product(x: torch.Tensor, name: str) -> torch.Tensor:
        kernel = w[f"{name}/kernel"]
        return torch.tensordot(x, kernel, x.ndim - 2 if name.endswith("out") else 1)

    def state(x: torch.Tensor, name: str) -> torch.Tensor:
        return norm(x, f"decoder/{name}") if dense and config["mudd_prenorm"] else x

    batch = tm.make_batch(ids)
    positions = torch.arange(ids.shape[1])[None].expand_as(batch.tokens)
    x = w["token_embedder/embedding"][batch.tokens]
    streams, states = [x] * 4, [state(x, "mudd_prenorm")]
    for n in range(L):
        b = f"decoder/layers_{n}/"
        before = b + "pre_self_attention_layer_norm"
        names = [f"{before}_{c}" if dense else before for c in "qkv"]
        parts = zip(streams, names, ("query", "key", "value"), strict=False)
        q, k, v = (product(norm(y, m), f"{b}self_attention/{p}") for y, m, p in parts)
        q, k = (tm.rope(y, positions, 10000.0) for y in (q, k))
        o = tm.causal_attention(q, k, v, batch).unflatten(-1, (H, -1))
        h = streams[3] + product(o, b + "self_attention/out")
        read = norm(h, b + "post_self_attention_layer_norm")
        x = h + product(F.silu(product(read, b + "mlp/wi_0")) * product(read, b + "mlp/wi_1"), b + "mlp/wo")
        streams = [x] * 4
        if not dense:
            continue
        states.append(state(x, f"mudd_prenorm_{n}"))
        u = norm(x, b + "pre_dense_proj1_norm" if config["mudd_prenorm"] else "")
        hidden = product(u, b + "dynamic_dense_conn1")
        hidden = {"gelu": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "silu": F.silu}[
            config["dynamic_dense_act_cls"]
        ](hidden)
        weights = torch.tensordot(hidden, w[b + "dynamic_dense_conn2/kernel"], 1) + w[b + "dense_proj2.bias"]
        made = list(torch.einsum("btcl,lbtd->cbtd", weights, torch.stack(states)))
        if config["mudd_postnorm"] and config["ddw_gen_pattern"] == "q,k,v,m":
            made[-1] = norm(made[-1], f"decoder/mudd_postnorm_{n}")
            made = [x + y for y in made]
        streams = made
    y = norm(streams[0], "decoder/decoder_norm")
    if not config["logits_via_embedding"]:
        return y @ w["decoder/logits_dense/kernel"]
    divisor = D**0.5 if config.get("normalize_embedding_logits", True) else 1.0
    return y @ w["token_embedder/embedding"].T / divisor


def torch_logits(config: dict[str, Any], weights: dict[str, Array], ids: Array) -> Array:
    """Compute float64 logits [B, T, V] from the PyTorch program's tensors, y = x W^T, with the equations of the spec.
    This defines its names and layouts without the mapping under test.
    """
    w = {name: torch.tensor(x, dtype=torch.float64) for name, x in weights.items()}
    pythia, dense, eps = "norm.bias" in w, config["dense"], config["norm_eps"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", torch.zeros(()))

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        if f"{name}.bias" in w:
            return tm.layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], eps)
        return tm.rms_norm(x, w[f"{name}.weight"], eps)

    def heads(x: torch.Tensor, name: str) -> torch.Tensor:
        x = tm.rms_norm(x.unflatten(-1, (-1, 8)), w[name], eps)
        turn = 2 if pythia else 8
        return torch.cat([tm.rope(x[..., :turn], positions, 10000.0), x[..., turn:]], -1)

    batch = tm.make_batch(ids)
    positions = torch.arange(ids.shape[1])[None].expand_as(batch.tokens)
    states = [w["tok_embeddings.weight"][batch.tokens]]
    streams = [states[0]] * 4
    for n in range(L):
        a = f"layers.{n}.attention"
        if dense:
            norms = [f"{a}_norms.{i}" for i in range(3)] if n else [f"{a}_norm"] * 3
            q, k, v = (
                linear(norm(x, m), f"{a}.w{c}") for x, m, c in zip(streams, norms, "qkv", strict=False)
            )
        else:
            kv = config["n_local_heads"] * 8
            q, k, v = linear(norm(streams[0], f"{a}_norm"), f"{a}.wqkv").split([D, kv, kv], -1)
        q, k = heads(q, f"{a}.q_norm.weight"), heads(k, f"{a}.k_norm.weight")
        h = streams[3] + linear(tm.causal_attention(q, k, v.unflatten(-1, (-1, 8)), batch), f"{a}.wo")
        f, read = f"layers.{n}.feed_forward", norm(streams[3] if pythia else h, f"layers.{n}.ffn_norm")
        gate = (
            F.gelu(linear(read, f"{f}.w1"))
            if pythia
            else F.silu(linear(read, f"{f}.w1")) * linear(read, f"{f}.w3")
        )
        states.append(h + linear(gate, f"{f}.w2"))
        streams = [states[-1]] * 4
        if dense:
            u = tm.rms_norm(states[-1], torch.ones(()), eps)
            dw = linear(F.gelu(linear(u, f"dynamic_dense.{n}.w1")), f"dynamic_dense.{n}.w2")
            weight = dw.unflatten(-1, w[f"dense_bs.{n}"].shape) + w[f"dense_bs.{n}"]
            streams = list(torch.einsum("lbtd,btcl->cbtd", torch.stack(states), weight))
    return linear(norm(streams[0], "norm"), "output").numpy()
