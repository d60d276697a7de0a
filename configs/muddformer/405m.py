"""MUDDFormer-405M of the scaling laws (docs/maths/muddformer.md, 3.3): the widths of Llama2Medium, both norms off."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 7.08 G tokens in 13,500 updates of 0.5 M."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432, max_seq_len=2048, d_model=1024, n_layer=24, n_head=16, d_ff=2816
    )
    return replace(
        base,
        name="muddformer-405m",
        model=model,
        train=replace(base.train, steps=13500),
        optim=replace(base.optim, lr=3e-4, warmup_steps=135),
    )
