"""Runs of launch.py by ranks of which one has a different environment, for tests that kill it at an exact point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from awake_clock import AwakeClock, wait_awake
from mpi_ranks import ENVIRONMENT
from mudd_core import _core
from tiny_run import CONFIG, TinyRun

STEPS = ("train.steps=40", "train.save_every=10", "train.eval_every=20")
MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none")
# The phases of a step of a model without experts.
PHASES = tuple(phase for phase in _core.phases() if phase not in ("idle", "exchange", "save", "evaluate"))
# The points of a save and the ranks that pass them: every rank writes its files, rank 0 the rest.
SAVE_POINTS = (
    ("after_mkdir", (0,)),
    ("after_block:2", (0, 1)),
    ("after_shard_write", (0, 1)),
    ("after_shard_sync", (0, 1)),
    ("before_manifest", (0,)),
    ("after_manifest_write", (0,)),
    ("after_manifest", (0,)),
    ("before_rename", (0,)),
    ("after_rename", (0,)),
    ("after_commit", (0,)),
)


def run_of(
    folder: Path, text: Path, *words: str, prefix: tuple[str, ...] = (), config: Path = CONFIG
) -> TinyRun:
    """Return the 50-thousand-parameter run in a folder."""
    return TinyRun(folder, text, (*STEPS, *words), ENVIRONMENT, prefix=prefix, config=config)


def job_of(
    folder: Path, text: Path, world: int, *words: str, config: Path = CONFIG, **variables: dict[int, str]
) -> TinyRun:
    """Return a run by `world` ranks under mpirun; variables: by name, the values for single ranks."""
    alone = run_of(folder, text, *words, config=config).command()
    line: list[str] = []
    for rank in range(world):
        line += [":"] if rank else []
        line += ["-n", "1"]
        for name, values in variables.items():
            line += ["-x", f"{name}={values[rank]}"] if rank in values else []
        line += alone if rank else []
    # TinyRun appends its command to the prefix; that is the command of the first rank, the others follow its arguments.
    own = line.index(":") if world > 1 else len(line)
    job = run_of(folder, text, *words, *line[own:], prefix=(*MPIRUN, *line[:own]), config=config)
    job.log_suffix = ".ranks.log"
    return job


@dataclass
class Kills:
    """A run that is killed repeatedly, resumes from its last checkpoint each time, and is then finished."""

    folder: Path
    text: Path
    world: int
    words: tuple[str, ...] = ()
    config: Path = CONFIG
    slowest: float = field(default=0.0, init=False)

    def _job(self, **variables: dict[int, str]) -> TinyRun:
        return job_of(self.folder, self.text, self.world, *self.words, config=self.config, **variables)

    def kill(self, rank: int, point: str) -> str:
        """Start a run in which one rank dies at this point; return the output. Raise AssertionError if it hangs."""
        job = self._job(MUDD_KILL_AT={rank: point})
        process = job.start()
        name = point.split(":")[0]
        try:
            job.wait_for_text(process, f"killed at {name}", timeout=300)
            died = AwakeClock()
            code = wait_awake(process, 10)
            assert code == 137, f"{point} of rank {rank}: {code}\n{job.tail}"
            self.slowest = max(self.slowest, died.look())
        finally:
            process.kill()
        return job.output

    def finish(self, whole: TinyRun) -> bool:
        """Run to the end without a fault; return True if the bits equal the whole run's."""
        job = self._job()
        assert job.finish(300) == 0, job.tail
        return job.same_as(whole)


def instants(world: int) -> Iterable[tuple[int, str]]:
    """Yield (rank, point) for every phase of a step and every point of a save."""
    for number, phase in enumerate(PHASES):
        yield number % world, f"phase_{phase}:{3 + number}"
    for point, ranks in SAVE_POINTS:
        for rank in ranks:
            yield rank, point
