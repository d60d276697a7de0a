"""The published distilgpt2 shape: gpt2 with 6 blocks."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return distilgpt2's config. For its token ids, set data.tokenizer to the model's tokenizer.json."""
    gpt2 = read_config(Path(__file__).parent / "gpt2.py")
    return replace(gpt2, name="distilgpt2", model=replace(gpt2.model, n_layer=6))
