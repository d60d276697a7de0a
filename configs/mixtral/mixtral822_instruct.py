"""Mixtral-8x22B-Instruct: mixtral822 with a vocabulary of 32,768 tokens."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 140.6 B parameters."""
    base = read_config(Path(__file__).parent / "mixtral822.py")
    model, data = replace(base.model, vocab_size=32768), replace(base.data, vocab_size=32768)
    return replace(base, name="mixtral822-instruct", model=model, data=data)
