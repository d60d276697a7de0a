"""Parallel blocks (GPT-J, PaLM): attention and feed-forward read the same normalized states, and both are added to
x.
"""

from __future__ import annotations

from dataclasses import dataclass

import mudd_core as mc
from mudd_core import nn, ops


@dataclass(frozen=True)
class Parallel(mc.FamilyConfig):
    """Sizes as in Transformer++; the feed-forward block has no gate."""

    qk_norm: bool = mc.opt(True, "queries and keys are normalized by head")


def model(config: Parallel, batch: mc.Batch, cache: mc.Cache | None = None) -> mc.Hidden:
    """Return the final states for the token ids."""
    sizes = config.settled()
    std, longest = config.init_std, batch.max_positions(config)
    seen = {"segments": batch.segments, "key_mask": batch.key_mask} if cache is None else {"ring": cache.ring}
    x = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    for layer in range(config.n_layer):
        with nn.part(f"blocks.{layer}"):
            a = nn.rms_norm(x, "norm", eps=config.norm_eps)
            heads = {"q": config.n_head, "k": sizes.n_kv_head, "v": sizes.n_kv_head}
            q, k, v = (nn.linear(a, name, count * sizes.d_head, std=std) for name, count in heads.items())
            if config.qk_norm:
                q, k = (ops.rms_norm(h, heads=n) for h, n in ((q, config.n_head), (k, sizes.n_kv_head)))
            q, k = (
                ops.rope(h, batch.positions, n_head=n, base=config.rope_base, max_positions=longest)
                for h, n in ((q, config.n_head), (k, sizes.n_kv_head))
            )
            if cache is not None:
                seen = {"k_cache": cache.k[layer], "v_cache": cache.v[layer], "ring": cache.ring}
            o = ops.attention(q, k, v, n_head=config.n_head, n_kv_head=sizes.n_kv_head, **seen)
            h = nn.linear(o, "o", config.d_model, std=std, residual=x)
            u = nn.linear(a, "up", config.d_ff, std=std, activation="gelu_tanh")
            x = nn.linear(u, "down", config.d_model, std=std, residual=h)
    return mc.Hidden(nn.rms_norm(x, "final_norm", eps=config.norm_eps), nn.head(config, std=std))


mc.register_family(Parallel, model)
