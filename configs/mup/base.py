"""The original's base.py: width 1024, with its optimizer, batch and sequence length (docs/maths/mup.md, 3.1)."""

from mudd_core.config import Config, DataConfig, EvalConfig, LossConfig, MupConfig, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 33 G tokens in 125,000 updates of 2^18.

    The learning rate of 1 is the original's default; its best was 2^-6.
    """
    return Config(
        name="mup-base",
        model=MupConfig(vocab_size=32100, max_seq_len=256, d_model=1024, qk_scale=1 / 128),
        data=DataConfig(vocab_size=32100, recipe_text="C4 (en)", recipe_tokenizer="T5 (t5-base)"),
        train=TrainConfig(
            steps=125000,
            batch_size=1024,
            seq_len=256,
            logical_shards=128,
            micro_batch_size=8,
            save_every=5000,
            eval_every=5000,
            log_every=100,
            precision="bf16",
        ),
        optim=OptimConfig(
            lr=1.0,
            beta2=0.95,
            weight_decay=0.0,
            decay="all",
            rule="mup",
            schedule="linear",
            warmup="floor",
            warmup_steps=10000,
            final_lr_ratio=1e-4,
        ),
        loss=LossConfig(normalize="all_slots"),
        eval=EvalConfig(max_batches=100),
    )
