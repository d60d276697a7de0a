"""The authors' 150M model on the Pile (their NeoX program): RoPE on a quarter of each head, erf gelu."""

from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TokenFormerConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 768 slots, 12 blocks, width 768; 143,000 updates of 1,024 sequences of 2,048 tokens.

    A validation reads 100 such batches. The newest six checkpoints are kept, and those after 0, 1, 2, 4 ... 512 steps.
    """
    return Config(
        name="tokenformer-150m",
        model=TokenFormerConfig(
            vocab_size=50304,
            max_seq_len=2048,
            d_model=768,
            n_layer=12,
            n_head=12,
            slot_num=768,
            gelu="erf",
            slot_eps=0.0,
            positions="rotary",
            rope_fraction=0.25,
            gain_offset=0.0,
            normalize_logits=False,
            init="neox",
        ),
        data=DataConfig(recipe_text="The Pile", recipe_tokenizer="GPT-NeoX-20B"),
        train=TrainConfig(
            steps=143_000,
            batch_size=1024,
            seq_len=2048,
            logical_shards=256,
            micro_batch_size=4,
            save_every=500,
            eval_every=5000,
            precision="bf16",
            keep_last=6,
            save_at=",".join(map(str, (0, *(2**power for power in range(10))))),
        ),
        optim=OptimConfig(
            lr=6e-4,
            warmup_steps=1430,
            warmup="zero",
            schedule="cosine",
            final_lr_ratio=0.1,
            decay="no_norm_no_bias",
        ),
        eval=EvalConfig(batch_size=4, max_batches=100 * 1024 // 4),
    )
