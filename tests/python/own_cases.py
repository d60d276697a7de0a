"""The user's own model files for tests: the examples, and Transformer++ written as such a file."""

from __future__ import annotations

from pathlib import Path

from places import ROOT

PARALLEL = f"{ROOT}/examples/parallel.py:Parallel"
STATE_SPACE = f"{ROOT}/examples/state_space.py:StateSpace"
MUDD_EVERY = f"{ROOT}/examples/mudd_every.py:MuddEvery"
ADAMW = f"{ROOT}/examples/adamw.py:adamw"
MOMENTUM = f"{ROOT}/examples/adamw.py:momentum"
PLUS = '''
from dataclasses import dataclass

import mudd_core as mc
from mudd_core import nn, ops


@dataclass(frozen=True)
class Plus(mc.FamilyConfig):
    """Transformer++ without biases."""


def model(config, batch, cache=None):
    sizes, std, longest = config.settled(), config.init_std, batch.max_positions(config)
    heads, groups, width = config.n_head, sizes.n_kv_head, sizes.d_head
    x = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    for layer in range(config.n_layer):
        with nn.part(f"blocks.{layer}.attn"):
            a = nn.rms_norm(x, "norm", eps=config.norm_eps)
            q, k, v = (
                nn.linear(a, name, n * width, std=std) for name, n in (("q", heads), ("k", groups), ("v", groups))
            )
            q = ops.rope(q, batch.positions, n_head=heads, base=config.rope_base, max_positions=longest)
            k = ops.rope(k, batch.positions, n_head=groups, base=config.rope_base, max_positions=longest)
            if cache is None:
                seen = {"segments": batch.segments, "key_mask": batch.key_mask}
            else:
                seen = {"k_cache": cache.k[layer], "v_cache": cache.v[layer], "ring": cache.ring}
            o = ops.attention(q, k, v, n_head=heads, n_kv_head=groups, **seen)
            x = nn.linear(o, "o", config.d_model, std=std, residual=x)
        with nn.part(f"blocks.{layer}.ffn"):
            f = nn.rms_norm(x, "norm", eps=config.norm_eps)
            u = ops.glu(
                nn.linear(f, "gate", config.d_ff, std=std), nn.linear(f, "up", config.d_ff, std=std), activation="silu"
            )
            x = nn.linear(u, "down", config.d_model, std=std, residual=x)
    return mc.Hidden(nn.rms_norm(x, "final_norm", eps=config.norm_eps), nn.head(config, std=std))


mc.register_family(Plus, model)
'''


def plus_file(folder: Path) -> Path:
    """Write Transformer++ as a user's file."""
    file = folder / "plus.py"
    file.write_text(PLUS)
    return file
