"""A MUDDFormer that reaches a useful loss within twenty minutes on two cores.

It has the layers and widths of transformer_pp/small.py, with three norms instead of one before attention, weight
generators with 1.8 % more parameters, and a d_ff from 256 to 768 with the same mean. A step reads few rows of the
embedding, so its learning rate is four times as high. Muon updates the matrices; three Newton-Schulz steps are enough
and leave time for more updates (bench/results/race/small_recipe.md). optim.name=adamw is faster and needs more updates.
"""

from mudd_core.config import Config, DataConfig, EvalConfig, MUDDFormerConfig, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return the config: 4.3 M parameters, 4,000 updates of 1,024 tokens."""
    return Config(
        name="muddformer-small",
        model=MUDDFormerConfig(d_model=192, n_layer=6, n_head=3, d_ff=512, init_std=0.02),
        data=DataConfig(vocab_size=4096),
        train=TrainConfig(
            steps=4000, batch_size=4, seq_len=256, save_every=1000, eval_every=1000, log_every=20
        ),
        optim=OptimConfig(
            name="muon",
            muon_steps=3,
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
