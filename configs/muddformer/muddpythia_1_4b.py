"""MUDDPythia-1.4B as released: multiway dense connections on Pythia blocks (docs/maths/muddformer.md, 3.2)."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, MUDDFormerConfig, read_config


def get_config() -> Config:
    """Return the config: 300 G tokens, with the recipe of Pythia."""
    base = read_config(Path(__file__).parent / "llama2_medium.py")
    model = MUDDFormerConfig(
        vocab_size=50432,
        max_seq_len=2048,
        d_model=2048,
        n_layer=24,
        n_head=16,
        d_ff=8192,
        block="pythia",
        rope_fraction=0.25,
        norm_eps=1e-5,
        qk_norm=True,
        first_norms=1,
        activation="gelu_erf",
    )
    return replace(
        base,
        name="muddformer-muddpythia-1-4b",
        model=model,
        train=replace(
            base.train, steps=143000, batch_size=1024, logical_shards=1024, save_every=1000, eval_every=10000
        ),
        optim=replace(base.optim, lr=2e-4, warmup_steps=1430),
    )
