"""The authors' 124M model on OpenWebText (their JAX program, first command): 576 slots, 12 blocks, width 768.

The text here is still the default corpus, so set data.path. For the original's ids, set data.tokenizer to the
tokenizer.json of gpt-neox-20b (50,277 ids, padded to 50,304).
"""

from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TokenFormerConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 123,569,664 parameters, 600,000 updates of 512 sequences of 1,024 tokens."""
    return Config(
        name="tokenformer-124m",
        model=TokenFormerConfig(
            vocab_size=50304, max_seq_len=1024, d_model=768, n_layer=12, n_head=12, slot_num=576
        ),
        data=DataConfig(seed=0, recipe_text="OpenWebText", recipe_tokenizer="GPT-NeoX-20B"),
        train=TrainConfig(
            steps=600_000,
            batch_size=512,
            seq_len=1024,
            logical_shards=64,
            micro_batch_size=8,
            save_every=10_000,
            eval_every=10_000,
            seed=42,
            precision="bf16",
            keep_last=0,
        ),
        optim=OptimConfig(
            lr=6e-4, warmup_steps=6000, warmup="zero", schedule="cosine", final_lr_ratio=0.1, decay="all"
        ),
        eval=EvalConfig(batch_size=8),
    )
