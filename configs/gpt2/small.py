"""A GPT-2 for a first real run, trained on the text of configs/small.py."""

from mudd_core.config import Config, DataConfig, GPT2Config, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 5.9 M parameters, 1,300 updates of 2,048 tokens."""
    return Config(
        name="gpt2-small",
        model=GPT2Config(d_model=256, n_layer=6, n_head=4, d_ff=1024),
        data=DataConfig(vocab_size=4096),
        train=TrainConfig(
            steps=1300, batch_size=8, seq_len=256, save_every=325, eval_every=325, log_every=10
        ),
        optim=OptimConfig(lr=2e-3, warmup_steps=60, schedule="cosine", final_lr_ratio=0.05),
    )
