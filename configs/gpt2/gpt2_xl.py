"""The published gpt2-xl shape: 48 blocks, width 1,600; otherwise as gpt2."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return gpt2-xl's config. For its token ids, set data.tokenizer to the model's tokenizer.json."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    shape = replace(gpt2.model, d_model=1600, n_layer=48, n_head=25, d_ff=6400)
    return replace(gpt2, name="gpt2-xl", model=shape)
