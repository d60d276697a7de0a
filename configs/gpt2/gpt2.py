"""The published gpt2 shape: 12 blocks, 768 wide, 50,257 tokens, 1,024 positions."""

from mudd_core.config import Config, DataConfig, GPT2Config, LossConfig, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return gpt2's config. For its token ids, set data.tokenizer to the model's tokenizer.json."""
    return Config(
        name="gpt2",
        model=GPT2Config(
            vocab_size=50257,
            max_seq_len=1024,
            d_model=768,
            n_layer=12,
            n_head=12,
            d_ff=3072,
            embd_dropout=0.1,
            attn_dropout=0.1,
            resid_dropout=0.1,
        ),
        data=DataConfig(vocab_size=50257, recipe_text="WikiText-103", recipe_tokenizer="GPT-2"),
        train=TrainConfig(
            steps=5000, batch_size=16, seq_len=256, save_every=5000, eval_every=5000, log_every=100
        ),
        optim=OptimConfig(
            lr=3e-5,
            beta2=0.98,
            weight_decay=0.01,
            decay="no_norm_no_bias",
            clip=0.0,
            schedule="linear",
            final_lr_ratio=0.0,
        ),
        loss=LossConfig(normalize="all_slots"),
    )
