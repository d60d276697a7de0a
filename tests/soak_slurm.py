"""Run the job script of launch.py slurm on a real Slurm of one node: ./run soak slurm; a log in bench/results.

Starts its own munged, slurmctld and slurmd (Debian: slurmctld slurmd slurm-client munge; needs root), submits the
tiny run by mpirun and by srun, preempts each job three times, and compares the final bits with a run of one process.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

from mpi_ranks import ENVIRONMENT  # noqa: E402
from rank_faults import run_of, same  # noqa: E402
from soak_log import Log  # noqa: E402
from tiny_run import TinyRun, write_text  # noqa: E402

WORDS = ("train.steps=3000", "train.save_every=1000", "train.eval_every=1500")
PREEMPTIONS = 3
CONFIGURATION = """
ClusterName=soak
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
ReturnToService=2
JobRequeue=1
MpiDefault=none
NodeName={host} CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A context manager that runs a cluster of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Slurm:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        host = socket.gethostname()
        conf = CONFIGURATION.format(host=host, folder=self.folder, cores=os.cpu_count())
        (self.folder / "slurm.conf").write_text(conf)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in ("socket", "key-file")]
        files += [f"--{name}-file={self.folder}/munge.{name}" for name in ("log", "pid", "seed")]
        self._daemon(["munged", "--force", "--foreground", *files])
        self._until(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._daemon(["slurmctld", "-D", "-i"])
        self._daemon(["slurmd", "-D"])
        self._until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T", check=False), "slurmd")
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()

    def _daemon(self, argv: list[str]) -> None:
        with (self.folder / f"{argv[0]}.log").open("w") as log:
            self._daemons.append(
                subprocess.Popen(argv, env=self.environment, stdout=log, stderr=subprocess.STDOUT)
            )

    def _until(self, true: object, name: str, seconds: float = 60) -> None:
        assert callable(true)
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                logs = "\n".join(file.read_text()[-2000:] for file in self.folder.glob("*.log"))
                raise TimeoutError(f"[soak slurm] {name} is not ready after {seconds:.0f} s\n{logs}")
            time.sleep(0.2)

    def run(self, *argv: str, check: bool = True) -> str:
        """Return the output of a Slurm command."""
        done = subprocess.run(
            argv, env=self.environment, cwd=ROOT, check=check, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def state(self, job: str) -> str:
        """Return the state of a job, as PENDING or RUNNING."""
        found = re.search(r"JobState=(\w+)", self.run("scontrol", "show", "job", job))
        return found[1] if found else "UNKNOWN"


def steps_of(run: TinyRun) -> int:
    """Return the last step in the metrics, or 0."""
    return int(run.rows()[-1]["step"]) if (run.workdir / "metrics.jsonl").exists() and run.rows() else 0


def preempted(slurm: Slurm, run: TinyRun, launcher: str, log: Log) -> bool:
    """Submit the run and preempt it three times; return True if it was requeued each time and finished."""
    options = ("--nodes=1", "--ranks-per-node=2", "--threads=1", f"--launcher={launcher}")
    script = run.workdir.with_name(f"{run.workdir.name}.sbatch")
    script.write_text(slurm.run(sys.executable, "launch.py", "slurm", *options, *run.command()[2:]))
    printed = slurm.run("sbatch", "--parsable", f"--output={run.log_path}", "--export=ALL", str(script))
    job, saved = printed.strip(), []
    for _ in range(PREEMPTIONS):
        begin = steps_of(run)
        slurm._until(lambda begin=begin: steps_of(run) >= begin + 100, "the next 100 steps")
        slurm.run("scancel", "--signal=USR1", "--batch", job)
        slurm._until(lambda: slurm.state(job) == "PENDING", "the requeued job")
        saved.append(steps_of(run))
        time.sleep(3)  # slurmd refuses a start in the second in which the last one ended: credential revoked
        slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    slurm._until(
        lambda: slurm.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), "the end of the job", 300
    )
    state = slurm.state(job)
    log.say(f"{launcher}: job {job}, 2 ranks, preempted after steps {saved}, then {state}")
    return state == "COMPLETED"


def soak(folder: Path, log: Log) -> Iterator[bool]:
    """Yield for each launcher whether its bits equal those of one process."""
    (folder / "text").mkdir()
    text = write_text(folder / "text")
    whole = run_of(folder / "whole", text, *WORDS)
    assert whole.finish(600) == 0, whole.tail
    (folder / "slurm").mkdir()
    with Slurm(folder / "slurm") as slurm:
        log.say(slurm.run("sinfo", "--version").strip())
        slurm.environment |= {**ENVIRONMENT, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "python")}
        for launcher in ("mpirun", "srun"):
            run = run_of(folder / launcher, text, *WORDS)
            good = preempted(slurm, run, launcher, log) and same(run, whole)
            log.say(f"{launcher}: bits {'equal' if good else 'DIFFER, or the job failed'}")
            if not good:
                log.say(run.tail)
            yield good


def main() -> int:
    """Run the soak; return 0 if both launchers pass, 2 if Slurm is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        lack = f"without {', '.join(missing)}" if missing else "not as root"
        print(
            f"[soak slurm] {lack}: apt-get install slurmctld slurmd slurm-client munge, and start it as root"
        )
        return 2
    today = datetime.datetime.now(datetime.UTC).date()
    log = Log(asked.log or ROOT / "bench" / "results" / f"soak_slurm_{today}.log")
    log.say(f"soak slurm: {today}, {platform.machine()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        good = all(list(soak(Path(name), log)))
    log.say("all hold" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
