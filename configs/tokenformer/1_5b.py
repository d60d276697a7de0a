"""The authors' 1.5B model on the Pile: the recipe of 150m.py, wider and deeper."""

import dataclasses
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 1,536 slots, 40 blocks, width 1,536, 16 heads."""
    base = read_config(Path(__file__).parent / "150m.py")
    model = dataclasses.replace(base.model, n_layer=40, d_model=1536, n_head=16, slot_num=1536)
    return dataclasses.replace(base, name="tokenformer-1.5b", model=model)
