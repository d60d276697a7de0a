"""The published gpt2-large shape: 36 blocks, width 1,280; otherwise as gpt2."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return gpt2-large's config. For its token ids, set data.tokenizer to the model's tokenizer.json."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    shape = replace(gpt2.model, d_model=1280, n_layer=36, n_head=20, d_ff=5120)
    return replace(gpt2, name="gpt2-large", model=shape)
