"""The config of the subprocess tests: 50 thousand parameters, 160 updates of 512 tokens, on one thread."""

from mudd_core.config import (
    Config,
    DataConfig,
    EvalConfig,
    OptimConfig,
    SampleConfig,
    TrainConfig,
    TransformerPPConfig,
)


def get_config() -> Config:
    """Return a model of bytes as tokens and two blocks of width 32."""
    return Config(
        name="tiny_run",
        model=TransformerPPConfig(d_model=32, n_layer=2, n_head=2, d_ff=128),
        data=DataConfig(tokenizer="bytes"),
        train=TrainConfig(
            steps=160,
            batch_size=8,
            seq_len=64,
            save_every=8,
            eval_every=40,
            log_every=1,
            keep_last=2,
            threads=1,
        ),
        optim=OptimConfig(lr=3e-3, warmup_steps=10),
        eval=EvalConfig(max_batches=2),
        sample=SampleConfig(max_tokens=4),
    )
