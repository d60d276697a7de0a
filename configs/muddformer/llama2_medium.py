"""Llama2Medium, the Transformer++ baseline of MUDDFormer, 411.6 M parameters (docs/maths/muddformer.md, 3.1)."""

from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TrainConfig, TransformerPPConfig


def get_config() -> Config:
    """Return the config: 7.08 G tokens in 13,500 updates of 256 sequences of 2,048 tokens."""
    return Config(
        name="llama2-medium",
        model=TransformerPPConfig(
            vocab_size=50432, max_seq_len=2048, d_model=1024, n_layer=24, n_head=16, d_ff=2816, init_std=0.006
        ),
        data=DataConfig(vocab_size=50432, seed=9876, recipe_text="The Pile", recipe_tokenizer="GPT-NeoX-20B"),
        train=TrainConfig(
            steps=13500,
            batch_size=256,
            seq_len=2048,
            logical_shards=256,
            micro_batch_size=1,
            save_every=500,
            eval_every=13500,
            keep_last=4,
            keep_every=1000,
            seed=9876,
            precision="bf16",
        ),
        eval=EvalConfig(batch_size=1, max_batches=41_472),
        optim=OptimConfig(
            lr=3e-4, warmup_steps=135, warmup="zero", schedule="cosine", final_lr_ratio=0.1, decay="all"
        ),
    )
