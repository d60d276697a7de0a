"""Mixtral-8x22B as the MLPerf benchmark trains it (docs/maths/moe.md, 6): 256 sequences of 32,768 tokens, 250 updates.

The capacity is unlimited, as in mixtral822.json; the benchmark itself sets model.capacity_factor=1.25.
"""

from mudd_core.config import Config, DataConfig, EvalConfig, MixtralConfig, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 140.6 B parameters, 39 B active per token. One machine can plan it; a cluster trains it."""
    return Config(
        name="mixtral822",
        model=MixtralConfig(
            vocab_size=32000,
            max_seq_len=65536,
            d_model=6144,
            n_layer=56,
            n_head=48,
            n_kv_head=8,
            d_ff=16384,
            aux_coef=0.001,
        ),
        data=DataConfig(vocab_size=32000, recipe_text="C4 (en, split of MLPerf)", recipe_tokenizer="Mixtral"),
        train=TrainConfig(
            steps=250,
            batch_size=256,
            seq_len=32768,
            logical_shards=256,
            micro_batch_size=1,
            seed=4321,
            eval_every=6,
            log_every=1,
            precision="bf16",
        ),
        optim=OptimConfig(
            lr=2e-5,
            beta2=0.999,
            schedule="constant",
            warmup_steps=62,  # a quarter of the steps
            warmup="between",
            decay="no_norm_no_bias",
        ),
        eval=EvalConfig(batch_size=1),
    )
