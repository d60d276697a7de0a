"""The 354M model grown to 4,850 slots."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 753,796,608 parameters, 4,850 slots."""
    base = read_config(Path(__file__).parent / "124m.py")
    return dataclasses.replace(
        base,
        name="tokenformer-757m",
        model=dataclasses.replace(base.model, slot_num=4850),
        train=dataclasses.replace(base.train, steps=120_000, save_every=2000),
        optim=dataclasses.replace(base.optim, warmup_steps=1200),
    )
