"""The proxy that `launch.py mup check` trains if no other config is named: d_head 8, base width 32."""

from mudd_core.config import Config, LossConfig, MupConfig, OptimConfig, TrainConfig


def get_config() -> Config:
    """Return the config: two blocks; the check sets the widths, the number of tokens and the sequence length."""
    return Config(
        name="mup-check",
        model=MupConfig(d_model=32, n_layer=2, d_base=32, d_head=8, qk_scale=1 / 8),
        train=TrainConfig(steps=40, batch_size=8, seq_len=32),
        optim=OptimConfig(
            lr=2**-6, weight_decay=0.0, decay="all", rule="mup", schedule="constant", warmup_steps=8
        ),
        loss=LossConfig(normalize="all_slots"),
    )
