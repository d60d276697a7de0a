"""The 124M model grown to 2,140 slots (the authors' second command). start.load_parameters_path names the old run."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 354,190,848 parameters, 2,140 slots."""
    base = read_config(Path(__file__).parent / "124m.py")
    return dataclasses.replace(
        base,
        name="tokenformer-354m",
        model=dataclasses.replace(base.model, slot_num=2140),
        train=dataclasses.replace(base.train, steps=120_000, save_every=2000),
        optim=dataclasses.replace(base.optim, warmup_steps=1200),
    )
