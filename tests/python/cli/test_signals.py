"""Stopping a real run: signals, the STOP file, a second signal, the lock, and the truncation of the log."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from mudd_core import _core, checkpoint
from tiny_run import TinyRun

pytestmark = pytest.mark.usefixtures("hangs_up")
STEPS = 160
STOPPED = 75


@pytest.fixture(scope="module")
def unbroken(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return TinyRun(tmp_path_factory.mktemp("unbroken") / "run", tiny_text).finished()


@pytest.mark.parametrize("name", [*(signal.Signals(n).name for n in _core.stop_signals()), "STOP file"])
def test_a_stop_saves_the_last_step_and_exits_75(
    name: str, unbroken: TinyRun, tiny_text: Path, memory_path: Path
) -> None:
    run = TinyRun(memory_path / "run", tiny_text)
    process = run.start()
    try:
        run.wait_for_step(process, 13)
        if name == "STOP file":
            (run.workdir / "STOP").touch()
        else:
            process.send_signal(getattr(signal, name))
        assert process.wait(20) == STOPPED, run.tail
    finally:
        process.kill()
    logged = [row["step"] for row in run.rows() if "loss" in row]
    newest = checkpoint.load_newest(run.checkpoints)
    # The last completed step, not the last multiple of train.save_every.
    assert newest is not None and newest.step == logged[-1] >= 13
    assert run.summary()["stopped"] == name and run.summary()["step"] == newest.step
    assert name == "STOP file" or "stop requested; a second signal leaves at once" in run.output
    assert "launch.py" in run.output  # the command that resumes the run
    assert not (run.workdir / "STOP").exists()

    run.finished()
    assert f"resumes at step {newest.step} " in run.output
    assert run.same_as(unbroken)


# Runs argv[2:] on a new terminal, closes it when the file argv[1] has 13 lines, and exits with the same code.
TERMINAL = """
import os, pty, select, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
def lines():
    return open(sys.argv[1], "rb").read().count(b"\\n") if os.path.exists(sys.argv[1]) else 0
waiting = select.poll()
waiting.register(terminal, select.POLLIN)
while lines() < 13:
    try:
        if waiting.poll(10):
            os.read(terminal, 65536)
    except OSError:
        pass  # of nohup nothing is on the terminal
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


NOHUP = ("/bin/sh", "-c", 'exec nohup "$@" > /dev/null 2>&1 < /dev/null', "sh")


@pytest.mark.parametrize("before", [(), NOHUP], ids=["alone", "nohup"])
def test_a_closed_terminal_stops_a_run_unless_nohup_ignores_it(
    before: tuple[str, ...], unbroken: TinyRun, tiny_text: Path, memory_path: Path
) -> None:
    program = (sys.executable, "-c", TERMINAL, str(memory_path / "run" / "metrics.jsonl"), *before)
    run = TinyRun(memory_path / "run", tiny_text, prefix=program)
    assert run.finish() == (0 if before else STOPPED), run.tail
    if not before:
        newest = checkpoint.load_newest(run.checkpoints)
        assert newest is not None and newest.step == run.summary()["step"] >= 13
        assert run.summary()["stopped"] == "SIGHUP"
        run.prefix = ()
        run.finished()
    assert run.same_as(unbroken)


def test_sigusr2_saves_and_goes_on(unbroken: TinyRun, tiny_text: Path, memory_path: Path) -> None:
    run = TinyRun(memory_path / "run", tiny_text, ("train.save_every=0",))
    process = run.start()
    try:
        run.wait_for_step(process, 5)
        process.send_signal(signal.SIGUSR2)
        assert process.wait(60) == 0, run.tail
    finally:
        process.kill()
    steps = checkpoint.list_steps(run.checkpoints)
    assert len(steps) == 2 and 5 <= steps[0] < STEPS and steps[1] == STEPS
    assert run.summary()["final_hash"] == unbroken.summary()["final_hash"]


@pytest.mark.parametrize(("second", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_leaves_at_once(
    second: signal.Signals, code: int, tiny_text: Path, memory_path: Path
) -> None:
    # An update takes so long that the second signal comes before the program can answer the first.
    words = ("train.batch_size=2048", "train.logical_shards=1", "train.save_every=1", "train.eval_every=0")
    run = TinyRun(memory_path / "run", tiny_text, words)
    process = run.start()
    try:
        run.wait_for_step(process, 2)
        # A save is short: the signal should come during step 3.
        while not (run.checkpoints / "step-2").is_dir():
            assert process.poll() is None, run.tail
            time.sleep(0.005)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        # two pending signals would be delivered in another order
        run.wait_for_text(process, "a second signal leaves at once")
        process.send_signal(second)
        found = process.wait(20)
    finally:
        process.kill()
    assert found == code, run.tail
    newest = checkpoint.load_newest(run.checkpoints)
    assert newest is not None and newest.step == 2  # the committed checkpoint is intact
    assert run.rows()[-1]["step"] == 2  # the program did not wait for the update in progress


def test_the_log_is_cut_back_to_the_resumed_step(
    unbroken: TinyRun, tiny_text: Path, memory_path: Path
) -> None:
    run = TinyRun(memory_path / "run", tiny_text)
    process = run.start()
    try:
        run.wait_for_step(process, 21)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    finally:
        process.kill()
    path = run.workdir / "metrics.jsonl"
    logged = run.rows()[-1]["step"]
    newest = checkpoint.list_steps(run.checkpoints)[-1]
    with path.open("a") as log:
        log.write(json.dumps({"step": logged + 1, "loss": 123.0}) + "\n")
        log.write('{"step": 99, "lo')  # an incomplete last line
    assert run.finish(timeout=60) == 0, run.tail
    assert f"resumes at step {newest} " in run.output
    assert run.same_as(unbroken)
    steps = [row["step"] for row in run.rows() if "loss" in row]
    assert steps == list(range(1, STEPS + 1))


def test_one_run_a_work_directory(tiny_text: Path, memory_path: Path) -> None:
    run = TinyRun(memory_path / "run", tiny_text)
    process = run.start()
    try:
        run.wait_for_step(process, 3)
        second = TinyRun(run.workdir, tiny_text, log_suffix=".second.log")
        assert second.finish() == 2
        assert f"process {process.pid}" in second.output
        assert process.poll() is None  # the failed start did not disturb the process with the lock
    finally:
        process.kill()
        process.wait()
    assert run.finish() == 0, run.output  # the lock was released when the process died


def test_a_finished_run_prints_its_summary_and_does_nothing(unbroken: TinyRun) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.checkpoints.rglob("*")}
    assert unbroken.finish() == 0
    assert unbroken.output.startswith(f"{unbroken.workdir} is finished. ")
    assert unbroken.output.splitlines()[-1].endswith(f" report {unbroken.workdir} --html")
    assert {path: path.stat().st_mtime_ns for path in unbroken.checkpoints.rglob("*")} == before


def test_another_config_is_refused_with_the_list_of_fields(unbroken: TinyRun, tiny_text: Path) -> None:
    words = ("optim.lr=0.5", "train.log_every=7")
    other = TinyRun(unbroken.workdir, tiny_text, words)
    assert other.finish() == 2
    assert "optim.lr: saved" in other.output and "train.log_every: saved" not in other.output
