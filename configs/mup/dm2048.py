"""The original's dm2048.py: base at width 2048 (docs/maths/mup.md, 3.2)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 1.21 G parameters without embedding and head."""
    base = read_config(Path(__file__).parent / "base.py")
    return replace(base, name="mup-dm2048", model=replace(base.model, d_model=2048))
