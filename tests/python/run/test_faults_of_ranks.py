"""Further faults of a run with several ranks: external stops, a full disk, values that stay NaN."""

from __future__ import annotations

import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_ranks import needs_mpi, ranks_of
from mudd_core import checkpoint
from mudd_core.base.errors import DivergedError, ReportedElsewhereError, UserError
from mudd_core.run.loop.trainer import Trainer
from rank_faults import MPIRUN, job_of, run_of
from rank_runs import config_of, on_ranks
from tiny_mixture_config import get_config
from tiny_run import CONFIG, MIXTURE, TinyRun

# Configs and arguments of meshes that shard weights or distribute experts.
AXES = {
    "zero 3": (CONFIG, ("mesh.zero=3", "dist.node=rank")),
    "expert": (MIXTURE, ("mesh.expert=2",)),
}


@needs_mpi
@pytest.mark.parametrize("way", ["USR1 to mpirun", "STOP"])
def test_a_stop_from_outside_is_one_of_all_ranks(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, way: str
) -> None:
    run = run_of(tmp_path / "run", tiny_text, prefix=(*MPIRUN, "-n", "2"))
    process = run.start()
    run.wait_for_step(process, 5)
    if way == "STOP":
        (run.workdir / "STOP").touch()
    else:
        process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 75, run.tail
    stopped = run.rows()[-1]["step"]
    assert checkpoint.list_steps(run.checkpoints)[-1] == stopped
    (run.workdir / "STOP").unlink(missing_ok=True)
    run.finished()
    assert f"resumes at step {stopped}" in run.output and run.same_as(whole)


@needs_mpi
@pytest.mark.parametrize("axis", [None, *AXES])
def test_a_full_disk_of_one_rank_costs_no_step_and_ends_with_74(
    whole: TinyRun, tiny_text: Path, memory_path: Path, axis: str | None
) -> None:
    config, words = AXES[axis] if axis else (CONFIG, ())
    if config == MIXTURE:
        whole = run_of(memory_path / "whole", tiny_text, config=config)
        whole.finished()
    run = run_of(memory_path / "run", tiny_text, *words, prefix=(*MPIRUN, "-n", "2"), config=config)
    process = run.start()
    try:
        run.wait_for_step(process, 12)
        resource.prlimit(ranks_of(run)[1], resource.RLIMIT_FSIZE, (20_000, 20_000))
        assert process.wait(60) == 74, run.tail
    finally:
        process.kill()
    assert "could not be saved" in run.output and run.step_printed() == 40, run.tail
    kept = checkpoint.list_steps(run.checkpoints)
    assert kept and kept[-1] < 40 and not list(run.checkpoints.glob("*.tmp-*"))
    run.finished()
    assert run.same_as(whole)


def with_memory(size: str) -> tuple[str, ...]:
    """Return a command prefix that runs the command with a /dev/shm of this size."""
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh")


SMALL = with_memory("64m")


def may_mount() -> bool:
    """Return True if this process may give a command a separate /dev/shm."""
    return (
        shutil.which("unshare") is not None and subprocess.run([*SMALL, "true"], check=False).returncode == 0
    )


@needs_mpi
@pytest.mark.skipif(
    not may_mount(), reason="no right to mount; test_comm_mpi.py asks for too much memory instead"
)
def test_little_shared_memory_means_messages_and_one_warning(
    whole: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run", tiny_text, prefix=(*SMALL, *MPIRUN, "-n", "2"))
    run.finished()
    assert run.output.count("ranks of one host exchange messages instead") == 1
    assert "2 ranks on 2 nodes" in run.output and run.same_as(whole)


@needs_mpi
@pytest.mark.skipif(
    not may_mount(), reason="no right to mount; test_ranks.py splits a node of threads instead"
)
def test_a_model_too_large_for_shared_memory_means_messages_and_one_warning(
    tiny_text: Path, tmp_path: Path
) -> None:
    words = ("train.steps=2", "model.vocab_size=20000", "model.d_model=512", "train.save=false")

    def done(name: str, prefix: tuple[str, ...]) -> TinyRun:
        run = run_of(tmp_path / name, tiny_text, *words, prefix=prefix)
        return run.finished()

    ranks = done("ranks", (*with_memory("180m"), *MPIRUN, "-n", "2"))
    assert ranks.output.count("ranks of one host exchange messages instead") == 1, ranks.tail
    assert "MiB free, shared memory needs" in ranks.output and "2 ranks on 2 nodes" in ranks.output
    assert ranks.same_as(done("alone", ()))


@needs_mpi
def test_another_emulated_level_on_one_rank_is_refused(tiny_text: Path, tmp_path: Path) -> None:
    run = job_of(tmp_path / "run", tiny_text, 2, MUDD_EMULATE={1: "portable"})
    assert run.finish() == 2, run.tail
    assert "[ranks] rank 1 on " in run.output and "MUDD_EMULATE" in run.output
    assert not run.workdir.exists()


@pytest.mark.parametrize(
    ("fields", "node_size"),
    [
        ({}, 2),
        ({"mesh.zero": 3}, 1),
        ({"model": get_config().model, "mesh.expert": 2}, 1),
    ],
)
def test_bad_numbers_of_one_rank_for_ever_end_all_and_name_it(
    tiny_text: Path, fields: dict[str, Any], node_size: int
) -> None:
    def work(comm: Any) -> str:
        with Trainer(config_of(tiny_text, **{"train.steps": 100, **fields}), comm=comm) as run:
            train = run.config.train
            shape = (train.batch_size, train.seq_len)
            batch = {"inputs": np.full(shape, 5, np.int32), "targets": np.full(shape, 6, np.int32)}
            batch["inputs"][-1] = 7  # only a sample of the last rank reads this embedding
            comm.barrier()
            parts = run.engine.state_parts(writable=True)
            [table] = [part for part in parts if part.name == "embed"] or [None]
            at = 7 * run.model.config.d_model
            if table is not None and (comm.node_rank == 0 and table.begin <= at < table.end):
                table.array.reshape(-1)[at - table.begin] = np.nan
            comm.barrier()  # the ranks of a node share one embedding table
            before = None if table is None else np.array(table.array)
            comm.barrier()
            try:
                for _ in range(100):
                    record = run.step(batch)
                    assert record.skipped
                    assert table is None or np.array_equal(table.array, before, equal_nan=True)
            except DivergedError as error:
                return str(error)
        return ""

    said = on_ranks(work, 2, node_size)
    assert all(re.search(r"embedding \(forward\): output 0, .* on rank 1 \(", text) for text in said), said


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mesh.zero": 3}, "mesh.zero: expected 1 as on rank 0 "),
        ({"model": get_config().model, "mesh.expert": 2}, "model.family: expected 'transformer_pp'"),
        ({"train.save_every": 2}, "train.save_every: expected 4"),
    ],
)
def test_ranks_with_another_config_are_refused(
    tiny_text: Path, tmp_path: Path, fields: dict[str, Any], named: str
) -> None:
    def work(comm: Any) -> str:
        own = fields if comm.rank == 1 else {}
        with pytest.raises((UserError, ReportedElsewhereError)) as caught:
            Trainer(config_of(tiny_text, **own), tmp_path / "run", comm=comm)
        assert caught.value.exit_code == 2
        return str(caught.value)

    first, _ = on_ranks(work, 2)
    assert "[ranks] rank 1 on " in first and named in first, first
    assert not (tmp_path / "run").exists()
