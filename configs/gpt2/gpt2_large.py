"""The published gpt2-large shape: 36 blocks, 1,280 wide; all else as gpt2."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """The shape of gpt2-large; give data.tokenizer the model's tokenizer.json to get its ids."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    shape = replace(gpt2.model, d_model=1280, n_layer=36, n_head=20, d_ff=5120)
    return replace(gpt2, name="gpt2-large", model=shape)
