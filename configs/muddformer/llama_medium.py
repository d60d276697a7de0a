"""LlamaMedium, the base class of the 2Medium configs, with 32,000 token ids (docs/maths/muddformer.md, 3.1)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, DataConfig, EvalConfig, read_config


def get_config() -> Config:
    """Return the config: 8 sequences per device on 8 devices.

    The schedule is from the 2Medium classes, and the intervals are from the base file.
    """
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    return replace(
        base,
        name="llama-medium",
        model=replace(base.model, vocab_size=32000),
        data=DataConfig(
            vocab_size=32000, seed=9876, recipe_text="The Pile", recipe_tokenizer="of 32,000 ids"
        ),
        train=replace(base.train, batch_size=64, logical_shards=64, save_every=250, eval_every=500),
        eval=EvalConfig(batch_size=1, max_batches=528),
    )
