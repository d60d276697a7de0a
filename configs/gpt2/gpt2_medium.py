"""The published gpt2-medium shape: 24 blocks, width 1,024; otherwise as gpt2."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return gpt2-medium's config. For its token ids, set data.tokenizer to the model's tokenizer.json."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    shape = replace(gpt2.model, d_model=1024, n_layer=24, n_head=16, d_ff=4096)
    return replace(gpt2, name="gpt2-medium", model=shape)
