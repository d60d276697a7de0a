"""MUDDLlama2Medium: Llama2Medium with dynamic dense connections, both norms on (docs/maths/muddformer.md, 3.1)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: the recipe of llama2_medium.py; d_ff rises from 1,408 to 4,224 in steps of 128."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432,
        max_seq_len=2048,
        d_model=1024,
        n_layer=24,
        n_head=16,
        d_ff=2816,
        prenorm=True,
        postnorm=True,
    )
    return replace(base, name="mudd-llama2-medium", model=model)
