"""SIGKILL at 20 points, 12 of them named points of a save: the end has the same bits as the unbroken run.

One work directory is killed again and again, and resumed by the same command each time. docs/checkpoints.md lists the
named points (MUDD_KILL_AT=<point>[:n] for the n-th passage in the process).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mudd_core import checkpoint
from mudd_core.base.errors import FormatError
from mudd_core.checkpoint import whole_parts
from tiny_run import TinyRun

# The point, and whether the kill leaves a temporary folder.
POINTS = [
    ("after_mkdir", True),
    ("after_block", True),
    ("after_block:2", True),
    ("after_shard_write:3", True),
    ("after_shard_sync", True),
    ("before_manifest:2", True),
    ("after_manifest_write", True),
    ("after_manifest", True),
    ("before_rename:2", True),
    ("after_rename", False),
    ("after_commit", False),
    ("after_delete_rename", True),
]
RANDOM_KILLS = 8


@dataclass
class Unbroken:
    """The unbroken run, with its processor time from command to exit."""

    run: TinyRun
    seconds: float


@pytest.fixture(scope="module")
def unbroken(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    run = TinyRun(tmp_path_factory.mktemp("unbroken") / "run", tiny_text)
    assert run.finish() == 0, run.tail  # builds the token cache, so that the time below excludes it
    shutil.rmtree(run.workdir)
    return Unbroken(run, timed_run(run, 1)[0])


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """Return the processor time of the process so far. Wall time would include other processes of a shared machine."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed_run(run: TinyRun, first_step: int) -> tuple[float, float]:
    """Return the processor seconds from command to exit, and from command to the first printed step."""
    process = run.start()
    try:
        run.wait_for_step(process, first_step)
        start_up = processor_seconds(process)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(
            status
        )  # wait4 has reaped the process, so Popen cannot
        assert process.returncode == 0, run.tail
        return used.ru_utime + used.ru_stime, start_up
    finally:
        process.kill()


def newest_committed(run: TinyRun) -> int:
    """Return the highest step whose manifest and shards verify, without the program's own search."""
    best = 0
    for folder in run.checkpoints.glob("step-*"):
        try:
            best = max(best, checkpoint.verify_step(folder).step)
        except FormatError:
            assert ".tmp-" in folder.name, f"a committed folder is broken: {folder}"
    return best


def assert_resumed_from(run: TinyRun, step: int) -> None:
    """Check that the run resumed from this step, as printed and logged, and not from an older step or the start."""
    resumed = [event for event in run.events() if event["event"] == "resumed"]
    printed = re.findall(r"resumes at step (\d+)", run.output)
    if step == 0:
        assert printed == []
        return
    assert printed == [str(step)], run.tail
    assert resumed[-1]["step"] == step


def assert_equal_runs(run: TinyRun, wanted: TinyRun) -> None:
    """Check that both runs logged equal values, except for times, and have the same hash of all weights."""
    assert run.rows() == wanted.rows()
    assert run.summary()["final_hash"] == wanted.summary()["final_hash"]


def temporaries(run: TinyRun) -> list[str]:
    return [path.name for path in run.checkpoints.glob("*.tmp-*")]


def kill_at_point(run: TinyRun, point: str, leaves: bool) -> None:
    code = run.finish(MUDD_KILL_AT=point)
    assert code == -signal.SIGKILL, f"{point}: exit {code}\n{run.tail}"
    assert f"killed at {point.split(':')[0]}" in run.output
    assert bool(temporaries(run)) == leaves, point


def kill_at_random(run: TinyRun, rng: random.Random, from_step: int) -> None:
    """Kill the run a few steps after the resume, at a random moment of a step or a save."""
    process = run.start()
    try:
        run.wait_for_step(process, from_step + rng.randint(1, 9))
        time.sleep(rng.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL, run.tail
    finally:
        process.kill()


def test_twenty_kills_change_nothing(unbroken: Unbroken, tiny_text: Path, memory_path: Path) -> None:
    seed = int(os.environ.get("MUDD_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"MUDD_TEST_SEED={seed}")
    rng = random.Random(seed)
    kills: list[tuple[str, bool] | None] = [*POINTS, *[None] * RANDOM_KILLS]
    rng.shuffle(kills)
    # This point is reached only if the process can delete an older step; so it is last, when older steps exist.
    kills.sort(key=lambda kill: kill is not None and kill[0] == "after_delete_rename")

    run = TinyRun(memory_path / "run", tiny_text)
    for kill in kills:
        start = newest_committed(run)
        if kill is None:
            kill_at_random(run, rng, start)
        else:
            kill_at_point(run, *kill)
        assert_resumed_from(run, start)
    start = newest_committed(run)
    left = 1 - start / unbroken.run.summary()["steps"]
    assert 0.05 < left < 1, "kills must leave something to resume and something to do"

    # Times are noisy: one of three attempts must be fast enough, but all must have the right bits.
    tries = []
    for attempt in range(3):
        last = TinyRun(memory_path / f"last-{attempt}", tiny_text)
        shutil.copytree(run.workdir, last.workdir)
        seconds, start_up = timed_run(last, start + 1)
        assert_resumed_from(last, start)
        assert temporaries(last) == []
        assert_equal_runs(last, unbroken.run)
        allowed = unbroken.seconds * left + start_up
        tries.append(f"{seconds:.2f} s of {allowed:.2f} s allowed")
        if seconds <= allowed:
            print(f"last run, {left:.0%} of the steps left: {tries}")
            break
    else:
        pytest.fail(f"the last run, with {left:.0%} of the steps left, took too long: {tries}")


def stopped_half_way(unbroken: Unbroken, tiny_text: Path, workdir: Path) -> TinyRun:
    run = TinyRun(workdir, tiny_text)
    kill_at_point(run, "after_commit:9", False)
    assert newest_committed(run) == 72
    return run


def test_control_one_changed_byte_in_the_state_is_seen(
    unbroken: Unbroken, tiny_text: Path, memory_path: Path
) -> None:
    """Change a byte of a weight and correct all checksums: the comparison above must fail."""
    run = stopped_half_way(unbroken, tiny_text, memory_path / "run")
    found = checkpoint.load_newest(run.checkpoints)
    assert found is not None
    name = next(name for name in sorted(found.tensors) if "/" not in name and found.tensors[name].size > 4)
    found.tensors[name].reshape(-1).view(np.uint8)[4] ^= 1
    shutil.rmtree(found.path)
    checkpoint.save(
        run.checkpoints,
        found.step,
        whole_parts(found.tensors),
        found.state,
        config_hash=found.config_hash,
        run_id=found.run_id,
    )
    run.finished()
    assert_resumed_from(run, 72)
    with pytest.raises(AssertionError):
        assert_equal_runs(run, unbroken.run)


def test_a_byte_changed_on_disk_is_refused_and_the_older_step_taken(
    unbroken: Unbroken, tiny_text: Path, memory_path: Path
) -> None:
    run = stopped_half_way(unbroken, tiny_text, memory_path / "run")
    (shard,) = (run.checkpoints / "step-72").glob("model-*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    run.finished()
    assert re.search(r"step 72 passed over: .*model-.*tensor '", run.output), run.tail
    assert_resumed_from(run, 64)
    assert_equal_runs(run, unbroken.run)
