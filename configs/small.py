"""The default small model: the MUDDFormer of configs/muddformer/small.py, saved in runs/small.

After two minutes, and after a quarter of an hour, it has the fewest bits per byte of the recipes in
bench/results/race.
"""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config of configs/muddformer/small.py with the name of this file."""
    return replace(read_config(Path(__file__).parent / "muddformer" / "small.py"), name="small")
