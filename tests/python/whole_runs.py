"""Whole runs by ranks that are threads of this process, with the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mudd_core.config import MixtralConfig
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records.events import Summary
from rank_runs import config_of, on_ranks
from tiny_run import TIMES

SLOW = {"longest_message": 1 << 12, "late": 0.002}  # a slow network (dist.threads)
MIXTURE = {
    "model": MixtralConfig(d_model=64, n_layer=2, n_head=2, n_kv_head=1, d_ff=64, n_expert=4),
    "sample.every": 4,
    "eval.max_batches": 3,  # not a multiple of the ranks
    "train.batch_size": 11,  # neither is this
}


def run(
    folder: Path,
    text: Path,
    world: int,
    node_size: int | None = None,
    network: dict[str, Any] | None = None,
    **fields: Any,
) -> Summary:
    """Train a whole run by ranks and return its summary. network: arguments of on_ranks, such as SLOW."""

    def work(comm: Any) -> Summary:
        with Trainer(config_of(text, **fields), folder, comm=comm) as trainer:
            return trainer.fit()

    summaries = on_ranks(work, world, node_size, **(network or {}))
    assert len({summary.final_hash for summary in summaries}) == 1
    first: Summary = summaries[0]
    return first


def lines(file: Path) -> list[str]:
    """Return the lines of a file."""
    return file.read_text().splitlines()


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the log entries of the metrics of a run, without the fields that depend on a clock."""
    found = map(json.loads, lines(folder / "metrics.jsonl"))
    return [{name: value for name, value in row.items() if name not in TIMES} for row in found]
