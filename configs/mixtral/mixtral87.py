"""Mixtral-8x7B with sequences of 4,096 tokens."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 46.7 B parameters, 12.9 B active per token. One machine can plan it."""
    base = read_config(Path(__file__).parent / "mixtral822.py")
    model = replace(
        base.model, max_seq_len=32768, d_model=4096, n_layer=32, n_head=32, d_ff=14336, aux_coef=0.02
    )
    return replace(base, name="mixtral87", model=model, train=replace(base.train, seq_len=4096))
