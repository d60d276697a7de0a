"""Power cuts and failing disks while threads write a checkpoint whose memory changes meanwhile."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crash_states
import rank_states
from checkpoint_cases import RUN, STATE, faults, same, save, tiny_tensors
from mudd_core import _core, checkpoint
from mudd_core.base.errors import SaveError
from mudd_core.checkpoint import StatePart, whole_parts
from mudd_core.checkpoint.async_save import AsyncSave
from mudd_core.checkpoint.save import StepSave
from mudd_core.dist import Comm
from rank_runs import on_ranks
from rank_states import WORLDS, random_tensors
from test_crash_replay import crashed, keep_last


def save_in_threads(
    disk: Path, step: int, parts: list[StatePart], room: int, comm: Comm | None = None, keep: int = 0
) -> None:
    """Save the parts, and change all of them as soon as that is allowed."""
    live = _core.LiveBytes(room)
    step_save = StepSave(disk, step, parts, STATE, comm=comm, **RUN)
    with step_save.errors():
        assert step_save.begin()
        writer = AsyncSave(step_save, live, lambda: keep_last(disk, keep, step), comm)
    live.release()
    if comm is not None:
        comm.barrier()  # the exchange of a step: ranks share memory
    for part in parts:
        np.frombuffer(part.array.reshape(-1).view(np.uint8), np.uint8)[...] = 0xFF
    while not writer.advance():
        pass


@pytest.mark.parametrize("room", [0, 150, 10_000])
def test_crash_replay_of_a_save_in_a_thread(memory_path: Path, room: int) -> None:
    disk = memory_path / "disk"
    save(disk, 0)
    save(disk, 1)
    before = crash_states.read_disk(disk)
    save(disk.with_name("plain"), 1)
    with faults() as plain:
        save(disk.with_name("plain"), 2)
    with faults() as files:
        save_in_threads(disk, 2, whole_parts(tiny_tensors(2)), room, keep=2)
    assert [call[0] for call in files.log][: len(plain.log)] == [call[0] for call in plain.log]
    seen = set()
    for count, root in crashed(files.log, disk, before) if room == 150 else []:
        checkpoint.recover(root)
        found = checkpoint.load_newest(root)
        assert found is not None and same(found.tensors, tiny_tensors(found.step)), count
        seen.add(found.step)
    assert room != 150 or seen == {1, 2}
    assert same(checkpoint.load_step(disk, 2).tensors, tiny_tensors(2))
    assert checkpoint.list_steps(disk) == [1, 2]


def test_a_failure_at_every_call_leaves_the_old_steps(memory_path: Path) -> None:
    for nth in range(1, 200):
        disk = memory_path / str(nth)
        save(disk, 1)
        with faults(fail_at=(nth, errno.ENOSPC)) as files:
            try:
                save_in_threads(disk, 2, whole_parts(tiny_tensors(2)), 150)
                failed = False
            except SaveError as error:
                assert "No space left on device" in str(error)
                failed = True
            except OSError:  # keep_last raised it, and Checkpoints translates it
                failed = True
        checkpoint.recover(disk)
        assert not list(disk.glob("*.tmp-*"))
        for step in checkpoint.list_steps(disk):
            assert same(checkpoint.load_step(disk, step).tensors, tiny_tensors(step)), nth
        assert 1 in checkpoint.list_steps(disk)
        if nth > files.count:
            assert not failed and checkpoint.list_steps(disk) == [1, 2]
            return
    pytest.fail("a save makes fewer than 200 calls")


TENSORS = ("embed", "final_norm.gain", "first_moment/embed")


@pytest.mark.parametrize("name", ["2", "4 of a node", "4 in parts"])
def test_ranks_write_the_files_of_an_ordinary_save(memory_path: Path, name: str) -> None:
    world, tensors = WORLDS[name], random_tensors(2, scale=40)
    rank_states.save(memory_path / "plain", 2, world, tensors)

    def work(comm: Comm) -> None:
        own: list[StatePart] = [
            StatePart(part.name, part.global_shape, part.begin, part.array.copy(), part.shared)
            for part in world.parts(tensors, comm)
        ]
        save_in_threads(memory_path / "threads", 2, own, 100 * comm.rank, comm)

    on_ranks(work, world.ranks, world.node_size)
    plain, found = (
        {file.name: file.read_bytes() for file in (memory_path / folder / "step-2").iterdir()}
        for folder in ("plain", "threads")
    )
    assert plain == found


def test_crash_replay_over_ranks_that_write_in_threads(memory_path: Path) -> None:
    disk, world = memory_path / "disk", WORLDS["2"]
    old, new = ({name: random_tensors(step)[name] for name in TENSORS} for step in (1, 2))
    rank_states.save(disk, 1, world, old)
    before = crash_states.read_disk(disk)

    def work(comm: Comm) -> None:
        own: list[Any] = [
            StatePart(part.name, part.global_shape, part.begin, part.array.copy(), part.shared)
            for part in world.parts(new, comm)
        ]
        save_in_threads(disk, 2, own, 100, comm)

    with faults() as files:
        on_ranks(work, 2, 2)
    seen = set()
    for count, root in crashed(files.log, disk, before):
        checkpoint.recover(root)
        found = checkpoint.load_newest(root)
        assert found is not None and same(found.tensors, new if found.step == 2 else old), count
        seen.add(found.step)
    assert seen == {1, 2} and found.step == 2
