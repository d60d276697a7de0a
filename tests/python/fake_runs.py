"""Runs of the training loop with the small exact engine, and readers of their logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine, fake_assembly
from mudd_core import checkpoint
from mudd_core.config import Config, load_config
from mudd_core.run.loop.trainer import Trainer

TIMES = ("seconds", "tokens_per_second", "peak_share", "phases", "hidden", "load")


def config_of(*words: str) -> Config:
    steps = [] if any(word.startswith("train.epochs=") for word in words) else ["train.steps=20"]
    base = [
        *steps,
        "train.save_every=5",
        "train.eval_every=8",
        "train.log_every=2",
        "optim.lr=0.05",
    ]
    return load_config("tiny.py", [*base, *words])


def make(path: Path | None, engine: FakeEngine | None = None, *words: str, **facts: Any) -> Trainer:
    return Trainer(config_of(*words), path, assemble=fake_assembly(engine or FakeEngine(), **facts))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the log without the times."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def steps_in(path: Path) -> list[int]:
    """Return the steps of the checkpoints of a run."""
    return checkpoint.list_steps(path / "checkpoints")


def unbroken(path: Path, *words: str) -> str:
    with make(path, None, *words) as trainer:
        return trainer.fit().final_hash
