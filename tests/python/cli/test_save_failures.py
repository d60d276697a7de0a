"""Disks that refuse writes and damaged checkpoints, seen from the command line: exit codes, messages, no data loss."""

from __future__ import annotations

import resource
from pathlib import Path

from mudd_core import checkpoint
from tiny_run import TinyRun

SHARD_LIMIT = 100_000  # bytes of any file; a shard of the tiny model is larger


def test_a_final_save_that_fails_exits_74_and_the_next_start_goes_on(
    tiny_text: Path, memory_path: Path
) -> None:
    run = TinyRun(memory_path / "run", tiny_text, ("train.stop_at=24",))
    run.stopped()
    assert checkpoint.list_steps(run.checkpoints) == [16, 24]

    more = TinyRun(run.workdir, tiny_text)
    process = more.start()
    try:
        more.wait_for_step(process, 25)
        # From now on no file may grow beyond the limit, which is like a full disk for this process.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (SHARD_LIMIT, SHARD_LIMIT))
        assert process.wait(60) == 74, more.tail
    finally:
        process.kill()
    assert "could not be saved" in more.output and "File too large" in more.output
    assert "File too large; raise the limit of file sizes (ulimit -f)" in more.output
    assert "descriptor" not in more.output
    assert max(checkpoint.list_steps(run.checkpoints)) < 160
    assert not list(run.checkpoints.glob("*.tmp-*"))

    newest = checkpoint.list_steps(run.checkpoints)[-1]
    more.finished()
    assert f"resumes at step {newest} " in more.output


def test_no_checkpoint_that_verifies_exits_65_and_nothing_is_overwritten(
    tiny_text: Path, memory_path: Path
) -> None:
    run = TinyRun(memory_path / "run", tiny_text, ("train.stop_at=16",))
    run.stopped()
    for shard in run.checkpoints.rglob("model-*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in run.checkpoints.rglob("*") if path.is_file()}
    rows = run.rows()
    assert TinyRun(run.workdir, tiny_text).finish() == 65
    for step in (8, 16):
        assert f"step {step} passed over" in run.output
    assert "model-00001-of-00001.safetensors" in run.output and "to start from step 0" in run.output
    assert {path: path.read_bytes() for path in run.checkpoints.rglob("*") if path.is_file()} == before
    assert run.rows() == rows
