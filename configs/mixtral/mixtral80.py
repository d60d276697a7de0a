"""The benchmark's dry run: one block of Mixtral-8x7B, 4 sequences of 512 tokens, 30 updates."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, EvalConfig, read_config


def get_config() -> Config:
    """Return the config: 1.7 B parameters, 0.66 B active per token; about 30 GB with gradients and moments."""
    base = read_config(Path(__file__).parent / "mixtral87.py")
    train = replace(base.train, steps=30, batch_size=4, seq_len=512, micro_batch_size=0, seed=0, eval_every=3)
    return replace(
        base,
        name="mixtral80",
        model=replace(base.model, n_layer=1),
        train=train,
        optim=replace(base.optim, warmup_steps=7),
        eval=EvalConfig(documents=100),
    )
