"""MUDDFormer-6.9B: measured for speed only (docs/maths/muddformer.md, 3.3), with the schedule of Pythia-6.9B."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 300 G tokens in 143,000 updates of 1,024 sequences."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432, max_seq_len=2048, d_model=4096, n_layer=32, n_head=32, d_ff=11008
    )
    return replace(
        base,
        name="muddformer-6-9b",
        model=model,
        train=replace(
            base.train, steps=143000, batch_size=1024, logical_shards=1024, save_every=1000, eval_every=10000
        ),
        optim=replace(base.optim, lr=1.2e-4, warmup_steps=1430),
    )
