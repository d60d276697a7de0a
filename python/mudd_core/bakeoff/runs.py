"""Runs every contestant with every seed; what is finished is skipped, what was stopped goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from mudd_core.bakeoff.contest import Contest, Contestant
from mudd_core.config import Config
from mudd_core.run_store import RunStore


def folder_of(out: Path, contestant: Contestant, seed: int) -> Path:
    """Work directory of one run."""
    return out / "runs" / f"{contestant.name}-seed{seed}"


def seeded(config: Config, seed: int) -> Config:
    """Seed of weights and data order; equal seeds give every contestant the same batches."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))


def run_all(contest: Contest, seeds: int, out: Path, say: Callable[[str], None] = print) -> bool:
    """False if a stop was asked for; the same call goes on then. Seed by seed, so that an early stop leaves pairs."""
    for seed in range(seeds):
        for contestant in contest.contestants:
            if not _run(contestant, seed, folder_of(out, contestant, seed), say):
                return False
    return True


def _run(contestant: Contestant, seed: int, folder: Path, say: Callable[[str], None]) -> bool:
    from mudd_core.trainer import Trainer

    store = RunStore(folder)
    try:
        config, _ = store.adopt(seeded(contestant.config, seed))
        if store.summary() is not None:
            return True
        say(f"{contestant.name}, seed {seed}: {config.train.steps} steps")
        summary = Trainer(config, store).fit()
        if summary.stopped:
            say(f"{contestant.name}, seed {seed}: stopped at step {summary.step}, saved")
            return False
        say(
            f"{contestant.name}, seed {seed}: {summary.val_bits_per_byte:.4f} bits per byte, "
            f"loss {summary.loss:.4f}, {summary.seconds:.0f} s"
        )
        return True
    finally:
        store.close()
