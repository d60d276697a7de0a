"""The runs of every candidate and seed. Finished runs are skipped, and stopped runs resume."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from mudd_core.config import Config
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore
from mudd_core.tools.bakeoff.comparison import Candidate, Comparison


def folders_of(out: Path, candidate: Candidate, seed: int) -> list[Path]:
    """Return the work directories of a candidate's runs, one for each stage."""
    base = out / "runs" / f"{candidate.name}-seed{seed}"
    earlier = [base.with_name(f"{base.name}-stage{i + 1}") for i in range(len(candidate.grown_from))]
    return [*earlier, base]


def seeded(config: Config, seed: int, source: Path | None) -> Config:
    """Set the seed of weights and data order; with equal seeds every candidate has the same batches.

    source: the run to start from.
    """
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
    if source is None:
        return config
    start = dataclasses.replace(config.start, load_parameters_path=str(source))
    return dataclasses.replace(config, start=start)


def run_all(
    comparison: Comparison,
    seeds: int,
    out: Path,
    say: Callable[[str], None] = print,
    ranks: Ranks | None = None,
) -> bool:
    """Train every run, seed by seed, so that pairs are complete after an early stop.

    Return False if a stop was requested; the same call then resumes. ranks: all of them train every run and make this
    call.
    """
    ranks = ranks or Ranks()
    for seed in range(seeds):
        for candidate in comparison.candidates:
            source = None
            for stage, folder in enumerate(folders_of(out, candidate, seed)):
                # Each stage has another data order, so that it reads other documents.
                config = seeded(candidate.stages[stage], seed + 1000 * stage, source)
                if not _run(f"{candidate.name}, seed {seed}", config, folder, say, ranks):
                    return False
                source = folder
    return True


def _run(name: str, asked: Config, folder: Path, say: Callable[[str], None], ranks: Ranks) -> bool:
    from mudd_core.run.loop.trainer import Trainer

    store = RunStore(RunFolder(folder), ranks)
    try:
        config, _ = store.adopt(asked)
        if store.summary() is not None:
            return True
        say(f"{name}: {config.train.steps} steps")
        summary = Trainer(config, store, comm=ranks.comm).fit(progress=False)
        if summary.stopped:
            say(f"{name}: stopped at step {summary.step}, saved")
            return False
        say(
            f"{name}: {summary.val_bits_per_byte:.4f} bits per byte, "
            f"loss {summary.loss:.4f}, {summary.seconds:.0f} s"
        )
        return True
    finally:
        store.close()
