"""A MUDDFormer that reaches a useful loss within twenty minutes on two cores.

It has the layers and widths of transformer_pp/small.py, with three norms instead of one before attention, weight
generators with 1.8 % more parameters, and a d_ff from 256 to 768 with the same mean. A step reads few rows of the
embedding, so its learning rate is four times as high (bench/results/race/small_recipe.md). This factor was
measured with AdamW; optim.groups= without a value removes it.
"""

from mudd_core.config import Config, DataConfig, EvalConfig, MUDDFormerConfig, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 4.3 M parameters, 5,800 updates of 1,024 tokens."""
    return Config(
        name="muddformer-small",
        model=MUDDFormerConfig(d_model=192, n_layer=6, n_head=3, d_ff=512, init_std=0.02),
        data=DataConfig(vocab_size=4096),
        train=TrainConfig(
            steps=5800, batch_size=4, seq_len=256, save_every=1450, eval_every=1450, log_every=20
        ),
        optim=OptimConfig(
            lr=2.5e-3,
            beta2=0.99,
            warmup_steps=150,
            schedule="linear",
            final_lr_ratio=0.0,
            decay="all",
            groups="embed, lr_factor=4",
        ),
        eval=EvalConfig(batch_size=8),
    )
