"""Llama7B, for measuring speed (docs/maths/muddformer.md, 3.1)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 32 blocks, width 4,096, one sequence per device on 8 devices, the schedule of the base
    file.
    """
    base = read_config(Path(__file__).parent / "llama_medium.py")
    model = replace(base.model, d_model=4096, n_layer=32, n_head=32, d_ff=11008)
    train = replace(base.train, steps=440000, batch_size=8, logical_shards=8)
    optim = replace(base.optim, warmup_steps=2200)
    return replace(base, name="llama-7b", model=model, train=train, optim=optim)
