"""Asynchronous saves from the command line: kills at the points of a save, full disks, ranks, keys of MaxText."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

from mudd_core import checkpoint
from tiny_run import TinyRun

ASYNC = "train.save_async=true"
POINTS = ("after_block:2", "after_shard_sync:4", "before_rename:2", "after_rename:3", "after_delete_rename")
SHARD_LIMIT = 100_000  # bytes of any file; a shard of the tiny model is larger


def test_a_run_killed_at_the_points_of_its_saves_ends_with_the_same_bits(
    tiny_text: Path, memory_path: Path
) -> None:
    words = ("train.steps=60",)
    plain = TinyRun(memory_path / "plain", tiny_text, words).trained()
    run = TinyRun(memory_path / "async", tiny_text, (*words, ASYNC))
    for point in POINTS:
        assert run.finish(MUDD_KILL_AT=point) == -signal.SIGKILL, run.tail
        for folder in run.checkpoints.glob("step-*"):
            assert ".tmp-" in folder.name or checkpoint.verify_step(folder)
    assert run.finished().same_as(plain)
    assert not list(run.checkpoints.glob("*.tmp-*"))
    assert checkpoint.list_steps(run.checkpoints) == checkpoint.list_steps(plain.checkpoints)


def test_a_disk_that_fills_during_the_run_exits_74_and_the_older_checkpoint_stays(
    tiny_text: Path, memory_path: Path
) -> None:
    run = TinyRun(memory_path / "run", tiny_text, ("train.stop_at=16", ASYNC))
    run.stopped()
    more = TinyRun(run.workdir, tiny_text, (ASYNC,))
    process = more.start()
    try:
        more.wait_for_step(process, 17)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (SHARD_LIMIT, SHARD_LIMIT))
        assert process.wait(60) == 74, more.tail
    finally:
        process.kill()
    assert "could not be saved" in more.output and "File too large" in more.output
    newest = checkpoint.list_steps(run.checkpoints)[-1]
    assert 16 <= newest < 160 and not list(run.checkpoints.glob("*.tmp-*"))
    more.finished()
    assert f"resumes at step {newest} " in more.output
