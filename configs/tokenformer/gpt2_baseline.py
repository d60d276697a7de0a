"""The authors' baseline gpt2.yml: linear layers with bias, SiLU, no positions, a tied head divided by sqrt(d_model)."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, TokenFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 123,689,472 parameters; only the blocks differ from 124m.py."""
    base = read_config(Path(__file__).parent / "124m.py")
    model = TokenFormerConfig(
        vocab_size=50304, max_seq_len=1024, d_model=768, n_layer=12, n_head=12, block="dense", d_ff=3072
    )
    train = dataclasses.replace(base.train, save_every=2000)
    return dataclasses.replace(base, name="tokenformer-gpt2-baseline", model=model, train=train)
