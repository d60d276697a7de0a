"""Runs by processes under mpirun, as a user starts them: bits, stops, lost or stopped ranks, ranks that differ."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mudd_core as mc
from level_workers import levels
from mpi_ranks import ENVIRONMENT, mpirun, needs_mpi, ranks_of, window_files
from places import HELPERS, ROOT, TESTS
from tiny_run import CONFIG, TinyRun

pytestmark = needs_mpi
STEPS = ("train.steps=40", "train.save_every=10", "train.eval_every=20")
MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n")


def run_of(folder: Path, text: Path, *words: str, prefix: tuple[str, ...] = ()) -> TinyRun:
    return TinyRun(folder, text, (*STEPS, *words), ENVIRONMENT, prefix=prefix)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = set(window_files())
    yield
    end = time.monotonic() + 10
    while set(window_files()) - before and time.monotonic() < end:
        time.sleep(0.05)
    assert not set(window_files()) - before


# Lines that mpirun prints at the end of a job, and its transport if a rank is gone.
OF_MPIRUN = re.compile("-" * 20 + "|MPI_ABORT|Primary job|Forwarding signal|ORTE_ERROR_LOG|Read -1")


def test_launch_with_ranks_is_the_run_of_one_process(whole: TinyRun, tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2")
    run.finished()
    assert run.same_as(whole) and run.output.count("\ndone: ") == 1 and "2 ranks on 1 node" in run.output
    log = (run.workdir / "log.txt").read_text()
    assert "mpirun -n 2" not in run.output and re.search(r"^started by \S*mpirun -n 2 ", log, re.M)
    assert run.output.count("\nstep ") >= 40, "a line for each step: the first rank is on no terminal"


@pytest.mark.parametrize(
    ("typed", "shown"), [("launch.py", "python3 launch.py"), ("./launch.py", "./launch.py"), ("mudd", "mudd")]
)
def test_ranks_print_the_program_that_the_user_typed(
    tiny_text: Path, tmp_path: Path, typed: str, shown: str
) -> None:
    (tmp_path / "launch.py").symlink_to(ROOT / "launch.py")
    (tmp_path / "mudd").write_text("from mudd_core.cli import main\n\nraise SystemExit(main())\n")
    cache = tiny_text.parent / "cache"
    words = [f"--config={CONFIG}", f"data.path={tiny_text}", f"data.cache_dir={cache}", "--workdir=run"]
    done = subprocess.run(
        [sys.executable, typed, *words, "train.steps=2", "train.stop_at=1", "--ranks=2"],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 75, done.stderr
    assert f"  {shown} --ranks=2 --config={CONFIG} " in done.stdout, done.stdout


def test_mpirun_starts_the_same_program(whole: TinyRun, tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, prefix=(*MPIRUN, "4"))
    run.finished()
    assert run.same_as(whole) and run.output.count("\ndone: ") == 1


def test_ranks_that_are_nodes_of_their_own_have_the_bits_of_one_process(
    whole: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", "dist.node=rank")
    run.finished()
    assert run.same_as(whole) and "2 ranks on 2 nodes" in run.output


@pytest.mark.parametrize("words", [(), ("dist.node=rank",)])
def test_ranks_that_cut_weights_have_the_bits_of_one_process(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", "mesh.zero=3", *words)
    run.finished()
    assert run.same_as(whole)


@pytest.mark.parametrize(("number", "node"), [(signal.SIGTERM, "host"), (signal.SIGINT, "rank")])
def test_a_stop_of_the_launcher_saves_and_another_world_goes_on(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, number: signal.Signals, node: str
) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", f"dist.node={node}")
    process = run.start()
    run.wait_for_step(process, 5)
    process.send_signal(number)
    assert process.wait(30) == 75, run.tail
    assert "stopped by SIGUSR1 at step" in run.output and "--ranks=2" in run.output
    assert run.output.count("stop requested") == 1 and not OF_MPIRUN.search(run.output)
    rest = run_of(tmp_path / "run", tiny_text, "--ranks=4")
    rest.finished()
    assert rest.same_as(whole)


@pytest.mark.parametrize("node", ["host", "rank"])
def test_what_all_ranks_warn_of_is_said_once(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, node: str
) -> None:
    weights = next((whole.workdir / "checkpoints").glob("step-*/model-*.safetensors"))
    words = (f"start.load_parameters_path={weights}", "train.steps=1", f"dist.node={node}")
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", *words)
    run.finished()
    assert run.output.count("only its weights are read, without checksums") == 1


def test_usr1_to_one_rank_stops_all_at_the_same_step(whole: TinyRun, tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, prefix=(*MPIRUN, "2"))
    process = run.start()
    run.wait_for_step(process, 5)
    os.kill(ranks_of(run)[1], signal.SIGUSR1)
    assert process.wait(30) == 75, run.tail
    rest = run_of(tmp_path / "run", tiny_text).finished()
    assert rest.same_as(whole)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_rank_ends_the_job_and_a_restart_goes_on(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, lost: int
) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", "--max-restarts=1")
    process = run.start()
    run.wait_for_step(process, 15)
    killed = time.monotonic()
    os.kill(ranks_of(run)[lost], signal.SIGKILL)
    run.wait_for_text(process, "restart 1 of 1 with 2 ranks", 10)
    assert time.monotonic() - killed < 5
    assert process.wait(60) == 0, run.tail
    resumed = re.search(r"resumes at step (\d+)", run.output)
    assert resumed and int(resumed[1]) >= 10  # a fast rank has saved a later step before the signal
    assert run.same_as(whole)


def test_a_stopped_rank_is_named_by_the_watchdog(tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", "dist.hang_timeout=2", "train.steps=4000")
    process = run.start()
    run.wait_for_step(process, 5)
    os.kill(ranks_of(run)[1], signal.SIGSTOP)
    assert process.wait(20) == 70, run.tail
    after = run.output.partition("[ranks] no progress for 2 s")[2]
    assert "rank 1" in after and "rank 0" in after and not OF_MPIRUN.search(after), run.tail
    assert "stop requested" not in after


def test_other_arguments_on_one_rank_are_refused(tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, prefix=(*MPIRUN, "1"))
    other = [*run.command()[len(run.prefix) :], "train.seed=1"]
    run.words = (*run.words, ":", "-n", "1", *other)
    assert run.finish() == 2, run.tail
    assert "[ranks] rank 1 on " in run.output and "arguments: expected" in run.output
    assert run.output.count("error:") == 1 and not run.workdir.exists()


def at_two_levels(run: TinyRun, high: str, low: str) -> TinyRun:
    """Return the run with rank 0 at one instruction set level and rank 1 at another."""
    run.prefix = (*MPIRUN, "1", "-x", f"MUDD_MAX_ISA={high}")
    other = run.command()[len(run.prefix) :]
    run.words = (*run.words, ":", "-n", "1", "-x", f"MUDD_MAX_ISA={low}", *other)
    return run


FP32_LEVELS = [level for level in levels() if not level.endswith("_bf16")]


@pytest.mark.parametrize("low", FP32_LEVELS[:-1])
@pytest.mark.parametrize("node", ["rank", "host"])
def test_ranks_of_different_levels_have_the_bits_of_one_process(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, node: str, low: str
) -> None:
    high = FP32_LEVELS[-1]
    run = at_two_levels(run_of(tmp_path / "run", tiny_text, f"dist.node={node}"), high, low)
    assert run.finish(120) == 0, run.tail
    assert run.same_as(whole)
    assert (f"has level {low} only, so rank 0 uses {low}" in run.output) == (node == "host"), run.tail


@pytest.mark.parametrize("refused", [False, True])
def test_ranks_in_bf16_use_one_unit(tiny_text: Path, tmp_path: Path, refused: bool) -> None:
    words = (
        "train.steps=3",
        "train.precision=bf16",
        "dist.node=rank",
        *(["dist.isa=same"] if refused else []),
    )
    run = at_two_levels(run_of(tmp_path / "run", tiny_text, *words), "amx_bf16", "avx2")
    differ = mc.isa().endswith("_bf16")
    assert run.finish() == (2 if refused and differ else 0), run.tail
    said = "bf16 unit (dist.isa=same): expected" if refused else "has level avx2 only, so rank 0 uses avx512"
    assert (said in run.output) == differ, run.tail


def test_processes_that_mpi_knows_nothing_of_are_refused(tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text)
    assert run.finish(SLURM_NTASKS="4") == 2
    assert "[launch] SLURM_NTASKS: expected 1 process, got 4" in run.output and not run.workdir.exists()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_binding_that_mpirun_made_by_itself_is_widened(tiny_text: Path, tmp_path: Path, ranks: int) -> None:
    cores = len(os.sched_getaffinity(0))
    run = run_of(tmp_path / "run", tiny_text, "train.steps=2", "train.threads=0")
    run.prefix = ("env", "-u", "OMP_NUM_THREADS", "mpirun", "--oversubscribe", "-n", str(ranks))
    run.finished()
    assert f" {max(1, cores // ranks)} thread" in run.output


def test_threads_of_the_environment_count_for_ranks(tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, "train.steps=2", "train.threads=0")
    run.prefix = ("env", "OMP_NUM_THREADS=3", "mpirun", "--oversubscribe", "-n", "2")
    run.finished()
    assert " 3 threads" in run.output and "3 threads share" in run.output


FAILING = """
import os, sys, tempfile
from pathlib import Path
sys.path[:0] = {paths!r}
from mudd_core.base.errors import FormatError
from mudd_core.cli.rank import ended, leave
from mudd_core.dist import launched
from mudd_core.run.loop import state, trainer, updates, validator
from mudd_core.run.ranks.ranks import Ranks
from rank_runs import config_of

place, workdir, text = sys.argv[1:]
comm = launched()
if comm.rank == 1:
    def fail(*_, **__):
        raise FormatError("part.bin", 12, "torn") if place == "evaluate" else ZeroDivisionError(place)
    owner, name = {{
        "start": (updates, "Recovery"),
        "forward": (updates.Updates, "make_update"),
        "evaluate": (validator, "evaluate"), "save": (state.RunState, "state"),
    }}[place]
    setattr(owner, name, fail)
def train():
    with trainer.Trainer(config_of(Path(text)), workdir, comm=comm) as run:
        run.fit()
    return 0
code = ended(train, Ranks(comm))
leave(comm)
sys.exit(code)
"""


@pytest.mark.parametrize("place", ["start", "forward", "evaluate", "save"])
def test_an_exception_in_one_rank_ends_the_job_at_once(tiny_text: Path, tmp_path: Path, place: str) -> None:
    program = FAILING.format(paths=[str(HELPERS), str(TESTS)])
    begin = time.monotonic()
    code, _, errors = mpirun(2, program, place, str(tmp_path / "run"), str(tiny_text))
    assert code == (65 if place == "evaluate" else 70), errors
    assert time.monotonic() - begin < 15, "a second or two of start, and no wait"
    assert errors.count("[ranks] rank 1 (") == 1 and errors.count("rank 0") == 0, errors
    assert errors.count("Traceback") == (0 if place == "evaluate" else 1), errors
    phase = {"start": "idle", "forward": "idle", "evaluate": "evaluate", "save": "save"}[place]
    assert f"({phase}) failed: " in errors, errors
