"""The deep, narrow MUDDFormer with 1.34 B parameters (docs/maths/muddformer.md, 3.3); both norms on, d_ff is a
guess.
"""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 26 G tokens in updates of 0.5 M."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432,
        max_seq_len=2048,
        d_model=1536,
        n_layer=42,
        n_head=24,
        d_ff=4096,
        prenorm=True,
        postnorm=True,
    )
    return replace(
        base,
        name="muddformer-1-34b-deep",
        model=model,
        train=replace(base.train, steps=49591),
        optim=replace(base.optim, lr=2e-4, warmup_steps=495),
    )
