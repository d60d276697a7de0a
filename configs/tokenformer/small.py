"""A TokenFormer that reaches a useful loss within twenty minutes on two cores; the recipe of
transformer_pp/small.py.
"""

from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TokenFormerConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 4.2 M parameters, 5,800 updates of 1,024 tokens."""
    return Config(
        name="tokenformer-small",
        model=TokenFormerConfig(
            d_model=192,
            n_layer=6,
            n_head=3,
            slot_num=144,
            positions="rotary",
            rope_fraction=1.0,
            tie_embeddings=False,
        ),
        data=DataConfig(vocab_size=4096),
        train=TrainConfig(
            steps=5800, batch_size=4, seq_len=256, save_every=1450, eval_every=1450, log_every=20
        ),
        optim=OptimConfig(lr=5e-3, warmup_steps=150, schedule="linear", final_lr_ratio=0.0, decay="all"),
        eval=EvalConfig(batch_size=8),
    )
