"""The authors' 757M model on OpenWebText2 (their NeoX program): owt2_354m grown, in the longer of two runs."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: 1,792 slots for q, k, v and output, 7,168 for feed-forward; 120,000 updates."""
    base = read_config(Path(__file__).parent / "owt2_354m.py")
    return replace(
        base,
        name="tokenformer-owt2-757m",
        model=replace(base.model, slot_num=1792),
        train=replace(base.train, steps=120_000, keep_last=4),
        optim=replace(base.optim, warmup_steps=1200),
    )
