"""The authors' 354M model on OpenWebText2 (their NeoX program): it has the form of 150m.py, and is grown later."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, EvalConfig, read_config


def get_config() -> Config:
    """Return the config: 768 slots for q, k, v and output, 3,072 for feed-forward; 512 sequences of 1,024 tokens.

    A validation reads 100 such batches.
    """
    base = read_config(Path(__file__).parent / "150m.py")
    model = replace(base.model, max_seq_len=1024, n_layer=24, d_model=1024, n_head=16, slot_num=768)
    return replace(
        base,
        name="tokenformer-owt2-354m",
        model=model,
        data=replace(base.data, recipe_text="OpenWebText2"),
        train=replace(base.train, steps=600_000, batch_size=512, seq_len=1024),
        optim=replace(base.optim, warmup_steps=6000),
        eval=EvalConfig(batch_size=4, max_batches=100 * 512 // 4),
    )
