"""The job script of `slurm` with a fake scheduler: preempted three times, requeued, and equal bits at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launched import launched
from mpi_ranks import ENVIRONMENT, needs_mpi
from mudd_core.cli import main
from tiny_run import ROOT, TinyRun

STEPS = ("train.steps=60", "train.save_every=0", "train.eval_every=30")


def job_script(*words: str) -> str:
    """Return the output of `launch.py slurm` in a fresh process."""
    argv = [sys.executable, "launch.py", "slurm", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Scheduler:
    """A scheduler that starts the job script as Slurm does, preempts it with USR1, and requeues it on request."""

    def __init__(self, folder: Path, run: TinyRun, launcher: str) -> None:
        self.run, self.requeued = run, folder / "requeued"
        self.script = folder / "job.sbatch"
        self.script.write_text(job_script(*run.command()[2:]))
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
        with self.run.log_path.open("w") as log:
            return subprocess.Popen(
                ["bash", str(self.script)],
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


# The lines of the template that users copied before the command existed, for the options of HEADER.
HEADER = [
    "--nodes=2",
    "--ranks-per-node=1",
    "--threads=16",
    "--time=24:00:00",
    "--job-name=mudd",
    "--partition=cpu",
    "--account=lab",
]
TEMPLATE = """#SBATCH --job-name=mudd
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --partition=cpu
#SBATCH --account=lab
#SBATCH --output=mudd-%j.log
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
""".splitlines()


def test_the_script_is_valid_shell_with_the_lines_of_the_options(tmp_path: Path) -> None:
    odd = 'name=it\'s "$HOME" `id`;'
    text = job_script(
        "--config=small.py", "--workdir=runs/a b", *HEADER, odd.replace("name=", "sample.prompt=")
    )
    assert [line for line in text.splitlines() if line.startswith("#SBATCH")] == TEMPLATE
    script = tmp_path / "job.sbatch"
    script.write_text(text)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True)
    tool = tmp_path / "mpirun"  # prints its arguments
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    paths = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "3"}
    done = subprocess.run(
        ["bash", str(script), "train.steps=3"], env={**os.environ, **paths}, capture_output=True, text=True
    )
    prompt, running = odd.replace("name=", "sample.prompt="), Path(sys.executable)
    words = [
        str(running.relative_to(ROOT) if running.is_relative_to(ROOT) else running),
        "launch.py",
        "--config=small.py",
        "--workdir=runs/a b",
        prompt,
        "train.steps=3",
    ]
    assert done.returncode == 0 and done.stdout.splitlines()[-6:] == words, done.stderr
    assert "slot:PE=3" in done.stdout


@pytest.mark.parametrize(
    ("words", "cores"),
    [
        ((), 16),
        (("--threads=4",), 4),
        (("train.threads=8",), 8),
        (("--threads=8", "train.threads=8"), 8),
        (("--threads=4", "train.threads=0"), 4),
        (("--cpus-per-task=3", "--ntasks-per-node=2"), 3),  # as sbatch names them
    ],
)
def test_a_rank_gets_the_cores_of_its_threads(words: tuple[str, ...], cores: int) -> None:
    lines = job_script("--config=tiny.py", *words).splitlines()
    assert f"#SBATCH --cpus-per-task={cores}" in lines


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "[slurm] expected the arguments of a training, got none; type: "),
        (
            ("sample", "--config=small.py"),
            "[slurm] expected the arguments of a training, got another command",
        ),
        (
            ("--config=small.py", "--plan"),
            "[slurm] expected the arguments of a training, got another command",
        ),
        (("--config=small.py", "--ranks=2"), "[slurm] --ranks: expected --nodes=N and --ranks-per-node=N"),
        (("--config=small.py", "--nodes=0"), "--nodes: expected a whole number of at least 1, got '0'"),
        (("--config=small.py", "--time=1h"), "--time: expected a time limit of Slurm, such as 90"),
        (("--config=small.py", "--partition=a;id"), "--partition: expected a name, got 'a;id'"),
        (("--config=small.py", "--python=a b"), "--python: expected a path without spaces, got 'a b'"),
        (
            ("--config=small.py", "--threads=4", "train.threads=8"),
            "[slurm] --threads: expected the 8 of train.threads, which each rank would use, got 4; leave out --threads",
        ),
        (
            ("--config=small.py", "--ntasks=4"),
            "[slurm] --ntasks: expected --nodes=N and --ranks-per-node=M for N x M",
        ),
        (
            ("--config=small.py", "-n", "4"),
            "[slurm] -n: expected --nodes=N and --ranks-per-node=M for N x M",
        ),
        (("--mem=4G", "--config=small.py"), "leave it out, then type: sbatch --mem=4G job.sbatch"),
        (("--config=small.py", "--qos", "a b"), "leave it out, then type: sbatch '--qos=a b' job.sbatch"),
        (("--hold", "--config=small.py"), "leave it out, then type: sbatch --hold job.sbatch"),
        (("--config=small.py", "--nodes=3"), "3 ranks do not divide the 4 shards"),
        (("--config=small.py", "train.stepz=4"), "unknown field 'train.stepz'"),
    ],
)
def test_wrong_arguments_are_refused_before_the_job_waits(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", *words]) == 2
    printed = capsys.readouterr()
    assert told in printed.err and not printed.out


def test_outside_a_checkout_the_job_runs_the_running_interpreter(tmp_path: Path) -> None:
    done = launched(tmp_path, "slurm", "--config=tiny.py")
    assert f"python=${{PYTHON:-{sys.executable}}}\n" in done.stdout
    assert '"$python" -m mudd_core' in done.stdout
