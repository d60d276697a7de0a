"""The published gpt2-medium shape: 24 blocks, 1,024 wide; all else as gpt2."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """The shape of gpt2-medium; give data.tokenizer the model's tokenizer.json to get its ids."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    shape = replace(gpt2.model, d_model=1024, n_layer=24, n_head=16, d_ff=4096)
    return replace(gpt2, name="gpt2-medium", model=shape)
