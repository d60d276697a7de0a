"""Time one JAX training run on a bench shape in a separate process; print one JSON object.

    python bench/baselines/jax_step.py --family transformer_pp --shape 9M --threads 2 --steps 12

A step is one jitted function with donated weights and moments: forward, backward, clip to norm 1 and AdamW, as in
torch_step.py. Weights have mudd_core's names and its [in, out] layout, which JAX uses too. The matrices of q, k, v
and of gate, up are concatenated inside the step. This copies the weights in every step but is faster than narrower
matmuls: 2,200 instead of 2,120 tokens/s on 9M, 322 instead of 300 on 55M. Needs jax, but nothing of mudd_core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from program import parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shapes import JAX_FAMILIES, SHAPES, Shape
from turns import turns
from workload import (
    BETAS,
    CLIP,
    DECAY,
    EPS,
    LR,
    batch_tokens,
    length,
    parameter_shapes,
    random_weights,
    timing,
)

Tree = dict[str, Any]  # arrays by mudd_core's names


def rms_norm(x: Any, gain: Any) -> Any:
    """Return x scaled to root mean square 1, times gain: [..., D] -> [..., D]."""
    import jax

    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    """Return the LayerNorm of x: [..., D] -> [..., D]."""
    import jax

    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """Apply RoPE in half layout to x [B, T, H, d]; cos and sin are [T, 1, d/2]."""
    import jax.numpy as jnp

    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def project(p: Tree, part: str, names: tuple[str, ...], x: Any) -> Any:
    """Multiply x by the concatenated matrices `part.<name>.w`; add their biases if the family has them."""
    import jax.numpy as jnp

    y = x @ jnp.concatenate([p[f"{part}.{n}.w"] for n in names], 1)
    if f"{part}.{names[0]}.b" in p:
        y = y + jnp.concatenate([p[f"{part}.{n}.b"] for n in names])
    return y


def norm(p: Tree, name: str, x: Any) -> Any:
    """Apply the norm `name`: a LayerNorm if it has a bias, else an RMSNorm."""
    bias = p.get(f"{name}.bias")
    return rms_norm(x, p[f"{name}.gain"]) if bias is None else layer_norm(x, p[f"{name}.gain"], bias)


def loss_of(p: Tree, inputs: Any, targets: Any, *, s: Shape) -> Any:
    """Return the mean loss of ids [B, T] for Transformer++, or for GPT-2 if there are learned positions."""
    import jax
    import jax.numpy as jnp

    gpt2 = "pos_embed" in p
    half = s.D // s.H // 2
    angle = np.arange(s.T)[:, None, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = (f(angle).astype(np.float32) for f in (np.cos, np.sin))
    x = p["embed"][inputs]
    if gpt2:
        x = x + p["pos_embed"]
    for n in range(s.L):
        attn, ffn = f"blocks.{n}.attn", f"blocks.{n}.ffn"
        qkv = project(p, attn, ("q", "k", "v"), norm(p, f"{attn}.norm", x))
        q, k, v = (t.reshape(*x.shape[:2], s.H, -1) for t in jnp.split(qkv, 3, -1))
        if not gpt2:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + project(p, attn, ("o",), y.reshape(x.shape))
        h = norm(p, f"{ffn}.norm", x)
        if gpt2:
            h = jax.nn.gelu(project(p, ffn, ("up",), h), approximate=True)
        else:
            gate, up = jnp.split(project(p, ffn, ("gate", "up"), h), 2, -1)
            h = jax.nn.silu(gate) * up
        x = x + project(p, ffn, ("down",), h)
    logits = norm(p, "final_norm", x) @ p["embed" if gpt2 else "head"].T
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def update(p: Tree, moments: tuple[Tree, Tree], step: Any, inputs: Any, targets: Any, *, s: Shape) -> Any:
    """Return (weights, moments, loss) after AdamW step `step` (from 1) with gradients clipped to norm CLIP."""
    import jax
    import jax.numpy as jnp

    loss, gradients = jax.value_and_grad(partial(loss_of, s=s))(p, inputs, targets)
    length = jnp.sqrt(sum((g * g).sum() for g in gradients.values()))
    scale = jnp.minimum(1.0, CLIP / (length + 1e-6))
    correction = [1 - b**step for b in BETAS]
    new: tuple[Tree, Tree, Tree] = ({}, {}, {})
    for name, w in p.items():
        g = gradients[name] * scale
        first = BETAS[0] * moments[0][name] + (1 - BETAS[0]) * g
        second = BETAS[1] * moments[1][name] + (1 - BETAS[1]) * g * g
        if w.ndim > 1:
            w = w * (1 - LR * DECAY)
        move = first / correction[0] / (jnp.sqrt(second / correction[1]) + EPS)
        for tree, value in zip(new, (w - LR * move, first, second), strict=True):
            tree[name] = value
    return new[0], new[1:], loss


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = parser(__doc__, JAX_FAMILIES, threads=2)
    p.add_argument("--max-isa", choices=("avx2", "avx512"), help="highest instruction set of XLA's code")
    return p.parse_args()


def prepare_process(a: argparse.Namespace) -> None:
    """Set threads and flags of XLA, which reads them once: call this before jax is imported."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[: a.threads]))
    if a.max_isa is not None:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={a.max_isa.upper()}"
    os.environ["JAX_PLATFORMS"] = "cpu"


def main() -> int:
    """Train on fixed random tokens and report."""
    a = parse()
    prepare_process(a)
    import jax
    import jax.numpy as jnp

    s = SHAPES[a.shape]
    if a.weights is None:
        values = random_weights(parameter_shapes(s, a.family))
    else:
        with np.load(a.weights, allow_pickle=False) as z:
            values = {k: z[k] for k in z.files}
    p: Tree = {name: jnp.asarray(values.pop(name)) for name in list(values)}
    moments = tuple({name: jnp.zeros_like(w) for name, w in p.items()} for _ in range(2))
    run = jax.jit(partial(update, s=s), donate_argnums=(0, 1))
    losses, seconds = [], []
    for step in turns(a.warmup + a.steps, a.in_turn):
        tokens = batch_tokens(s, step).astype(np.int32)
        start = time.perf_counter()
        p, moments, loss = run(p, moments, jnp.float32(step + 1), tokens[:, :-1], tokens[:, 1:])
        jax.block_until_ready((p, moments))
        losses.append(float(loss))
        seconds.append(time.perf_counter() - start)
    report = {
        "name": f"JAX {jax.__version__} jit",
        **timing(s, seconds, a.warmup),
        "isa": (a.max_isa or "all").upper(),
        "threads": a.threads,
        "losses": losses,
        "state": {
            part: length(map(np.asarray, tree.values()))
            for part, tree in zip(("weights", "first_moment", "second_moment"), (p, *moments), strict=True)
        },
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
