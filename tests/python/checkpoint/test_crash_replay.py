"""Power cuts: for every subset of a save that the disk kept, the loader finds a whole step, the old or the new one."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crash_states
import rank_states
from checkpoint_cases import RUN, STATE, faults, same, save, tiny_tensors
from mudd_core import checkpoint
from mudd_core.base.errors import SaveError
from mudd_core.checkpoint import whole_parts
from places import HELPERS
from rank_states import WORLDS, random_tensors


def keep_last(directory: Path, keep: int, saved_step: int) -> None:
    checkpoint.keep_last(directory, keep, run_id=RUN["run_id"], saved_step=saved_step)


def crashed(
    log: list[crash_states.Call], disk: Path, before: crash_states.Disk
) -> Iterator[tuple[int, Path]]:
    """Yield (number of calls, folder) for every state that a power cut may leave."""
    rng, root = random.Random(3), disk.with_name("crashed")
    for count in range(len(log) + 1):
        for fates in crash_states.variants(log, count, rng, samples=4):
            root.mkdir()
            crash_states.materialise(crash_states.replay(log, fates, before), str(disk), root)
            yield count, root
            shutil.rmtree(root)


@pytest.mark.parametrize("old", [None, "good", "bad"])
def test_crash_replay_of_every_prefix(memory_path: Path, old: str | None) -> None:
    """Replay a save of step 2 that also deletes step 0; before it there is no step 2, a good or a broken one."""
    disk = memory_path / "disk"
    save(disk, 0)
    save(disk, 1)
    if old is not None:
        save(disk, 2)
    if old == "bad":
        (disk / "step-2" / "manifest.json").write_text("broken")
    before = crash_states.read_disk(disk)
    with faults() as files:
        save(disk, 2)
        keep_last(disk, 2, 2)
    seen = set()
    for count, root in crashed(files.log, disk, before):
        checkpoint.recover(root)
        found = checkpoint.load_newest(root)
        assert found is not None and found.step in (1, 2), count
        assert same(found.tensors, tiny_tensors(found.step)) and found.state == STATE
        assert not list(root.glob("*.tmp-*"))
        save(root, 2)  # and the run resumes from there
        assert checkpoint.load_step(root, 2).step == 2
        seen.add(found.step)
        if count == len(files.log):
            assert found.step == 2
    assert seen == ({2} if old == "good" else {1, 2})


def test_crash_replay_over_the_files_of_two_ranks(memory_path: Path) -> None:
    """The ranks write at the same time, so calls on the two ranks' files come in any order."""
    disk = memory_path / "disk"
    old, new = ({name: random_tensors(step)[name] for name in TWO_FILES} for step in (1, 2))
    rank_states.save(disk, 1, WORLDS["2"], old)
    before = crash_states.read_disk(disk)
    with faults() as files:
        rank_states.save(disk, 2, WORLDS["2"], new)
    assert len(list((disk / "step-2").iterdir())) == 5
    seen = set()
    for count, root in crashed(files.log, disk, before):
        checkpoint.recover(root)
        found = checkpoint.load_newest(root)
        assert found is not None and same(found.tensors, new if found.step == 2 else old), count
        assert not list(root.glob("*.tmp-*"))
        seen.add(found.step)
    assert seen == {1, 2} and found.step == 2


TWO_FILES = ("embed", "final_norm.gain", "first_moment/embed")  # on each of two ranks


def other_values() -> dict[str, np.ndarray[Any, Any]]:
    """Return weights that somebody set after the save of this step."""
    return {name: array + 1 for name, array in tiny_tensors(2).items()}


@pytest.mark.parametrize("exchanges", [True, False])
def test_the_only_step_is_never_lost_when_it_is_saved_with_other_values(
    memory_path: Path, exchanges: bool
) -> None:
    disk = memory_path / "disk"
    save(disk, 2)
    before = crash_states.read_disk(disk)
    with faults(**({} if exchanges else {"refuse_exchange": ()})) as files:
        checkpoint.save(disk, 2, whole_parts(other_values()), STATE, **RUN)
    assert "exchange" in [call[0] for call in files.log] or not exchanges
    assert [path.name for path in disk.iterdir()] == ["step-2"]
    seen = set()
    for count, root in crashed(files.log, disk, before):
        for tidy in (False, True):  # a reader changes nothing; the next start of the run cleans up
            if tidy:
                checkpoint.recover(root)
            found = checkpoint.load_newest(root)
            assert found is not None and found.step == 2 and found.passed_over == (), count
            is_new = same(found.tensors, other_values())
            assert is_new or same(found.tensors, tiny_tensors(2)), count
            assert same(checkpoint.load_step(root, 2).tensors, found.tensors)
            seen.add(is_new)
        assert [path.name for path in root.iterdir()] == ["step-2"]
    assert seen == {True, False}


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_replacement_that_fails_at_any_call_keeps_the_step(memory_path: Path, exchanges: bool) -> None:
    for nth in range(1, 200):
        root = memory_path / str(nth)
        save(root, 2)
        with faults(fail_at=(nth, errno.ENOSPC), **({} if exchanges else {"refuse_exchange": ()})) as files:
            try:
                checkpoint.save(root, 2, whole_parts(other_values()), STATE, **RUN)
                failed = False
            except SaveError:
                failed = True
        checkpoint.recover(root)
        found = checkpoint.load_newest(root)
        assert found is not None and [path.name for path in root.iterdir()] == ["step-2"], nth
        assert same(found.tensors, other_values()) or (failed and same(found.tensors, tiny_tensors(2)))
        if not failed and nth > files.count:
            return
    pytest.fail("a save makes fewer than 200 calls")


def test_a_replacement_that_does_not_read_back_leaves_the_old_step(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(memory_path, 2)
    monkeypatch.setattr(
        sys.modules["mudd_core.checkpoint.save"], "verify_sealed", lambda folder: spoil(Path(folder))
    )
    with pytest.raises(SaveError, match="differs from the data that were written"):
        checkpoint.save(memory_path, 2, whole_parts(other_values()), STATE, **RUN)
    assert [path.name for path in memory_path.iterdir()] == ["step-2"]
    assert same(checkpoint.load_step(memory_path, 2).tensors, tiny_tensors(2))


def spoil(folder: Path) -> None:
    """Corrupt a byte of a sealed folder, as a disk might do."""
    from mudd_core.checkpoint.verify import verify_sealed

    shard = next(folder.glob("model-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    verify_sealed(folder)


SAVES_TWICE = (
    "import sys; from test_crash_replay import *; root = Path(sys.argv[1]); save(root, 2); "
    "checkpoint.save(root, 2, whole_parts(other_values()), STATE, **RUN)"
)


@pytest.mark.parametrize("point", ["before_rename:2", "after_exchange", "after_commit:2"])
def test_a_kill_while_the_only_step_is_replaced(memory_path: Path, point: str) -> None:
    paths = os.pathsep.join([os.environ["PYTHONPATH"], os.path.dirname(__file__), str(HELPERS)])
    env = {**os.environ, "MUDD_KILL_AT": point, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", SAVES_TWICE, str(memory_path)], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    assert checkpoint.recover(memory_path)  # a kill at each of these points leaves half a step
    found = checkpoint.load_newest(memory_path)
    assert found is not None and [path.name for path in memory_path.iterdir()] == ["step-2"]
    assert same(found.tensors, tiny_tensors(2) if point == "before_rename:2" else other_values())
