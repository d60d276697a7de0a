"""MUDDFormer-1.4B of the scaling laws (docs/maths/muddformer.md, 3.3); MUDDPythia-1.4B has another number of heads."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 26 G tokens in updates of 0.5 M."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432, max_seq_len=2048, d_model=2048, n_layer=24, n_head=32, d_ff=5504
    )
    return replace(
        base,
        name="muddformer-1-4b",
        model=model,
        train=replace(base.train, steps=49591),
        optim=replace(base.optim, lr=2e-4, warmup_steps=495),
    )
