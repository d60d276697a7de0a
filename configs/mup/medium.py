"""The original's medium.py (later dm512.py): base at width 512 (docs/maths/mup.md, 3.2)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 75.5 M parameters without embedding and head."""
    base = read_config(Path(__file__).parent / "base.py")
    return replace(base, name="mup-medium", model=replace(base.model, d_model=512))
