"""A muP transformer that learns visibly within two minutes on two cores: small.py with four layers and smaller
batches.
"""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, DataConfig, read_config


def get_config() -> Config:
    """Return the config: 1.3 M parameters, 300 updates of 2,048 tokens, with the vocabulary and the text of tiny."""
    small = read_config(Path(__file__).parent / "small.py")
    return replace(
        small,
        name="mup-tiny",
        model=replace(small.model, vocab_size=0, max_seq_len=0, n_layer=4),
        data=DataConfig(vocab_size=2048),
        train=replace(
            small.train,
            steps=300,
            batch_size=8,
            save_every=150,
            eval_every=150,
            log_every=10,
            precision="fp32",
        ),
        optim=replace(small.optim, lr=2**-6, warmup_steps=30),
        eval=replace(small.eval, max_batches=0),
    )
