"""The 757M model grown to 8,620 slots."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 1,309,705,728 parameters, 8,620 slots."""
    base = read_config(Path(__file__).parent / "124m.py")
    return dataclasses.replace(
        base,
        name="tokenformer-1.4b",
        model=dataclasses.replace(base.model, slot_num=8620),
        train=dataclasses.replace(base.train, steps=120_000, save_every=2000),
        optim=dataclasses.replace(base.optim, warmup_steps=1200),
    )
