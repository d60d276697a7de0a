"""The published gpt2-xl shape: 48 blocks, 1,600 wide; all else as gpt2."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """The shape of gpt2-xl; give data.tokenizer the model's tokenizer.json to get its ids."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    shape = replace(gpt2.model, d_model=1600, n_layer=48, n_head=25, d_ff=6400)
    return replace(gpt2, name="gpt2-xl", model=shape)
