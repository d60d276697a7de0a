"""The learning rate of an update, computed by the core (libm differs between machines)."""

from __future__ import annotations

from mudd_core.config import Config


def learning_rate(config: Config, t: int) -> float:
    """Learning rate of update t, counted from 0."""
    from mudd_core import _core

    optim = config.optim
    rate: float = _core.learning_rate(
        optim.schedule,
        t,
        peak=optim.lr,
        steps=config.train.steps,
        warmup_steps=optim.warmup_steps,
        final_ratio=optim.final_lr_ratio,
        decay_steps=optim.decay_steps,
    )
    return rate
