"""The authors' 450M model on the Pile: the recipe of 150m.py, wider and deeper."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 1,024 slots, 24 blocks, width 1,024, 16 heads."""
    base = read_config(Path(__file__).parent / "150m.py")
    model = dataclasses.replace(base.model, n_layer=24, d_model=1024, n_head=16, slot_num=1024)
    return dataclasses.replace(base, name="tokenformer-450m", model=model)
