"""The authors' 900M model on the Pile: the recipe of 150m.py, wider and deeper."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 1,280 slots, 32 blocks, width 1,280, 16 heads."""
    base = read_config(Path(__file__).parent / "150m.py")
    model = dataclasses.replace(base.model, n_layer=32, d_model=1280, n_head=16, slot_num=1280)
    return dataclasses.replace(base, name="tokenformer-900m", model=model)
