"""The default tiny model: the Transformer++ of configs/transformer_pp/tiny.py."""

from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config of configs/transformer_pp/tiny.py."""
    return read_config(Path(__file__).parent / "transformer_pp" / "tiny.py")
