"""A mixture of experts that reaches a useful loss within twenty minutes, with the active FLOPs of
transformer_pp/small.
"""

from mudd_core.config import (
    Config,
    DataConfig,
    EvalConfig,
    MixtralConfig,
    OptimConfig,
    TrainConfig,
)


def get_config() -> Config:
    """Return the config: 9.5 M parameters, 5,000 updates of 1,024 tokens; top 2 of 8 experts of half the dense
    width.
    """
    return Config(
        name="mixtral-small",
        model=MixtralConfig(d_model=192, n_layer=6, n_head=3, d_ff=256, aux_form="per_layer"),
        data=DataConfig(vocab_size=4096),
        train=TrainConfig(
            steps=5000, batch_size=4, seq_len=256, save_every=1250, eval_every=1250, log_every=20
        ),
        optim=OptimConfig(
            lr=2.5e-3, warmup_steps=150, schedule="linear", final_lr_ratio=0.0, decay="no_norm_no_bias"
        ),
        eval=EvalConfig(batch_size=8),
    )
