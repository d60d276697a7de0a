"""deploy/slurm/train.sbatch with a fake scheduler: preempted three times, requeued, and equal bits at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_ranks import ENVIRONMENT, needs_mpi
from tiny_run import ROOT, TinyRun

SCRIPT = ROOT / "deploy" / "slurm" / "train.sbatch"
STEPS = ("train.steps=60", "train.save_every=0", "train.eval_every=30")


class Scheduler:
    """A scheduler that starts the job script as Slurm does, preempts it with USR1, and requeues it on request."""

    def __init__(self, folder: Path, run: TinyRun, launcher: str) -> None:
        self.run, self.requeued = run, folder / "requeued"
        tools = folder / "tools"
        tools.mkdir()
        self.state = folder / "state"
        self.state.write_text("JobId=17 JobName=mudd\n   JobState=RUNNING Reason=None Dependency=(null)\n")
        answer = f'if [ "$1" = show ]; then cat "{self.state}"; else echo "$@" >>"{self.requeued}"; fi'
        self._tool(tools / "scontrol", answer)
        if launcher == "stand-in":  # one process for any options
            self._tool(tools / "mpirun", 'while [ "${1#*python}" = "$1" ]; do shift; done; exec "$@"')
        paths = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
        self.environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": paths,
            "PYTHON": sys.executable,
            **ENVIRONMENT,
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "SLURM_JOB_ID": "17",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_SUBMIT_DIR": str(ROOT),
        }

    @staticmethod
    def _tool(path: Path, body: str) -> None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        words = self.run.command()[2:]
        with self.run.log_path.open("w") as log:
            return subprocess.Popen(
                ["bash", str(SCRIPT), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                text=True,
            )

    def requeues(self) -> int:
        return len(self.requeued.read_text().splitlines()) if self.requeued.exists() else 0


@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        ("stand-in", signal.SIGUSR1),
        ("stand-in", signal.SIGTERM),
        pytest.param("mpirun", signal.SIGUSR1, marks=needs_mpi),
    ],
)
def test_three_preemptions_change_no_bit(
    tiny_text: Path, tmp_path: Path, launcher: str, number: signal.Signals
) -> None:
    whole = TinyRun(tmp_path / "whole", tiny_text, STEPS).finished()
    run = TinyRun(tmp_path / "run", tiny_text, STEPS)
    scheduler = Scheduler(tmp_path, run, launcher)
    for preemption, step in enumerate((10, 25, 40), 1):
        process = scheduler.start()
        try:
            run.wait_for_step(process, step)
            process.send_signal(number)
            assert process.wait(60) == 75, run.tail
        finally:
            process.kill()
        assert scheduler.requeues() == preemption
    process = scheduler.start()
    assert process.wait(60) == 0, run.tail
    assert scheduler.requeued.read_text() == "requeue 17\n" * 3
    assert run.same_as(whole)


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED", ""])
def test_a_job_that_scancel_ends_saves_and_is_not_requeued(
    tiny_text: Path, tmp_path: Path, state: str
) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, STEPS)
    scheduler = Scheduler(tmp_path, run, "stand-in")
    scheduler.state.write_text(f"JobId=17 JobName=mudd\n   JobState={state} Reason=None\n" if state else "")
    process = scheduler.start()
    try:
        run.wait_for_step(process, 10)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75, run.tail
    finally:
        process.kill()
    assert scheduler.requeues() == 0 and list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_a_stop_that_the_user_asked_for_is_not_requeued(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, (*STEPS, "train.stop_at=5"))
    scheduler = Scheduler(tmp_path, run, "stand-in")
    assert scheduler.start().wait(60) == 75, run.tail
    assert scheduler.requeues() == 0


def test_another_launcher_is_refused(tmp_path: Path, tiny_text: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text)
    scheduler = Scheduler(tmp_path, run, "stand-in")
    scheduler.environment["LAUNCH"] = "ray"
    assert scheduler.start().wait(60) == 2
    assert "LAUNCH: expected mpirun or srun, got ray" in run.output


def test_the_script_is_valid_shell() -> None:
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(SCRIPT)], check=True)
