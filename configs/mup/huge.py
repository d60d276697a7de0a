"""The original's huge.py (later dm8192.py): base at width 8192 (docs/maths/mup.md, 3.2)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 19.3 G parameters without embedding and head."""
    base = read_config(Path(__file__).parent / "base.py")
    return replace(base, name="mup-huge", model=replace(base.model, d_model=8192))
