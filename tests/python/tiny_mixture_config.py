"""The config of tiny_run_config.py with four experts per feed-forward part: blocks of 4,096 elements each."""

from mudd_core.config import (
    Config,
    DataConfig,
    EvalConfig,
    MixtralConfig,
    OptimConfig,
    SampleConfig,
    TrainConfig,
)


def get_config() -> Config:
    """Return a model of bytes as tokens and two blocks of width 32."""
    train = TrainConfig(
        steps=160, batch_size=8, seq_len=64, save_every=8, eval_every=40, log_every=1, keep_last=2, threads=1
    )
    return Config(
        name="tiny_mixture",
        model=MixtralConfig(d_model=32, n_layer=2, n_head=2, n_kv_head=1, d_ff=128, n_expert=4),
        data=DataConfig(tokenizer="bytes"),
        train=train,
        optim=OptimConfig(lr=3e-3, warmup_steps=10),
        eval=EvalConfig(max_batches=2),
        sample=SampleConfig(max_tokens=4),
    )
