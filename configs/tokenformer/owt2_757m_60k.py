"""The authors' 757M model on OpenWebText2, in the shorter of two runs."""

from dataclasses import replace
from pathlib import Path

from mudd_core.config import Config, read_config


def get_config() -> Config:
    """Return the config: owt2_757m with 60,000 updates."""
    base = read_config(Path(__file__).parent / "owt2_757m.py")
    train, optim = replace(base.train, steps=60_000), replace(base.optim, warmup_steps=600)
    return replace(base, name="tokenformer-owt2-757m-60k", train=train, optim=optim)
