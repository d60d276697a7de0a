"""MUDDFormer-405M with experts, the paper's mixture run (docs/maths/muddformer.md, 2.4): 1.87 G weights, 405M active.

The paper gives the sizes, 16 experts of width 1,408 with the top 2 per token, no dropped tokens, and 26 G tokens. The
rest is the recipe of 405m.py.
"""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 26 G tokens in updates of 0.5 M."""
    base = read_config(Path(__file__).parent / "405m.py")
    model = MUDDFormerConfig(
        vocab_size=50432,
        max_seq_len=2048,
        d_model=1024,
        n_layer=24,
        n_head=16,
        d_ff=1408,
        ffn_realloc=False,
        n_expert=16,
        top_k=2,
    )
    return replace(
        base,
        name="muddformer-405m-moe",
        model=model,
        train=replace(base.train, steps=49591),
        optim=replace(base.optim, warmup_steps=495),
    )
