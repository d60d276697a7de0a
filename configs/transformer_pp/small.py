"""The first real run: a Transformer++ trained to a useful loss within twenty minutes."""

from mudd_core.config import Config, DataConfig, OptimConfig, TrainConfig, TransformerPPConfig


def get_config() -> Config:
    """6.9 M parameters, 1,300 updates of 2,048 tokens."""
    return Config(
        name="small",
        model=TransformerPPConfig(d_model=256, n_layer=6, n_head=4, d_ff=704),
        data=DataConfig(vocab_size=4096),
        train=TrainConfig(
            steps=1300, batch_size=8, seq_len=256, save_every=325, eval_every=325, log_every=10
        ),
        optim=OptimConfig(lr=2e-3, warmup_steps=60, schedule="cosine", final_lr_ratio=0.05),
    )
