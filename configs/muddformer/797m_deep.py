"""The deep, narrow MUDDFormer with 797 M parameters (docs/maths/muddformer.md, 3.3); both norms on, d_ff is a guess."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 15 G tokens in updates of 0.5 M."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432,
        max_seq_len=2048,
        d_model=1280,
        n_layer=34,
        n_head=20,
        d_ff=3456,
        prenorm=True,
        postnorm=True,
    )
    return replace(
        base,
        name="muddformer-797m-deep",
        model=model,
        train=replace(base.train, steps=28610),
        optim=replace(base.optim, lr=2.5e-4, warmup_steps=286),
    )
