"""MUDDFormer-834M of the scaling laws (docs/maths/muddformer.md, 3.3)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 15 G tokens in updates of 0.5 M."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432, max_seq_len=2048, d_model=1536, n_layer=24, n_head=24, d_ff=4096
    )
    return replace(
        base,
        name="muddformer-834m",
        model=model,
        train=replace(base.train, steps=28610),
        optim=replace(base.optim, lr=2.5e-4, warmup_steps=286),
    )
