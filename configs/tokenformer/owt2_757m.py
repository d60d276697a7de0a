"""The authors' 757M model on OpenWebText2 (their NeoX program): owt2_354m grown, the longer of their two runs."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """1,792 slots of q, k, v and output, 7,168 of the feed-forward; 120,000 updates."""
    base = read_config(Path(__file__).parent / "owt2_354m.py")
    return replace(
        base,
        name="tokenformer-owt2-757m",
        model=replace(base.model, slot_num=1792),
        train=replace(base.train, steps=120_000, keep_last=4),
        optim=replace(base.optim, warmup_steps=1200),
    )
