"""The work directory: one run at a time, no foreign folders, and files that are complete or absent."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fake_runs import config_of, make
from mudd_core import _core, checkpoint
from mudd_core.base.errors import SaveError, UserError
from mudd_core.run.store import lease
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.json_files import write_json
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore

HOLD = (
    "import sys,time; from pathlib import Path; from mudd_core.run.store.folder_lock import FolderLock; "
    "from mudd_core.run.store.run_folder import RunFolder; d = FolderLock(RunFolder(Path(sys.argv[1]))); "
    "print('held', flush=True); time.sleep(60)"
)


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_loser_names_the_holder_and_the_lock_dies_with_it(tmp_path: Path) -> None:
    process = holder(tmp_path / "run")
    try:
        with pytest.raises(UserError, match=f"in use by process {process.pid} on "):
            FolderLock(RunFolder(tmp_path / "run"))
    finally:
        process.kill()
        process.communicate()
    FolderLock(RunFolder(tmp_path / "run")).close()


def test_one_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    with FolderLock(RunFolder(tmp_path)), pytest.raises(UserError, match=str(os.getpid())):
        FolderLock(RunFolder(tmp_path))
    FolderLock(RunFolder(tmp_path)).close()


def test_a_second_trainer_takes_over_from_one_that_is_done(tmp_path: Path) -> None:
    first = make(tmp_path, None, "train.stop_at=10")
    with pytest.raises(UserError, match=r"that is this process: call close\(\) of the Trainer that uses it"):
        make(tmp_path)
    assert first.fit().stopped == "train.stop_at"
    second = make(tmp_path)  # the first trainer has saved everything
    assert second.step_done == 10
    for use in (first.save, first.fit):
        with pytest.raises(UserError, match="a later Trainer of this process uses it; create a new Trainer"):
            use()
    assert checkpoint.list_steps(tmp_path / "checkpoints") == [5, 10]
    second.fit()
    second.step()  # a step after the last save
    with pytest.raises(UserError, match="that is this process"):
        make(tmp_path)
    second.close()
    with make(tmp_path) as third:
        assert third.step_done == 20


def test_a_trainer_in_a_circle_of_references_is_dropped_too(tmp_path: Path) -> None:
    first: Any = make(tmp_path)
    first.itself = first
    del first
    make(tmp_path).close()


def test_a_lock_that_holds_nonsense_still_holds(tmp_path: Path) -> None:
    with FolderLock(RunFolder(tmp_path)):
        (tmp_path / ".lock").write_text("[" * 4000)
        with pytest.raises(UserError, match="in use by another process"):
            FolderLock(RunFolder(tmp_path))


def test_a_dropped_one_gives_the_lock_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = FolderLock(RunFolder(tmp_path))
    del first
    second = FolderLock(RunFolder(tmp_path))
    second.close()
    second.close()  # a second close has no effect
    monkeypatch.setattr(fcntl, "flock", no_locks)
    lease = FolderLock(RunFolder(tmp_path))
    assert (tmp_path / ".lease").exists()
    del lease
    assert not (tmp_path / ".lease").exists()


def test_foreign_folders_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        FolderLock(RunFolder(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        FolderLock(RunFolder(tmp_path / "thesis.tex"))
    with pytest.raises(UserError, match="cannot be written"):
        FolderLock(RunFolder(Path("/proc/none")))


def test_own_leftovers_and_saved_runs_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "STOP").touch()
    FolderLock(RunFolder(tmp_path)).close()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").touch()
    FolderLock(RunFolder(tmp_path)).close()


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_without_locks_a_lease_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    first = FolderLock(RunFolder(tmp_path))
    assert "file system without locks" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        FolderLock(RunFolder(tmp_path))
    old = time.time() - 2 * lease.LEASE_SECONDS
    os.utime(tmp_path / ".lease", (old, old))
    second = FolderLock(RunFolder(tmp_path))  # the lease of a dead process is taken over
    assert first._lease is not None and second._lease is not None
    first._lease._last_look -= 2 * lease.LEASE_SECONDS
    # It was not dead: the later process now has the lock.
    with pytest.raises(UserError, match="in use by process"):
        first.beat()
    first.close()
    second._lease._last_look -= 2 * lease.LEASE_SECONDS
    second.beat()
    with pytest.raises(UserError):
        FolderLock(RunFolder(tmp_path))
    second.close()
    assert not (tmp_path / ".lease").exists()


def test_a_lease_is_renewed_whatever_the_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.06)
    with FolderLock(RunFolder(tmp_path)):
        begin = (tmp_path / ".lease").stat().st_mtime_ns
        for _ in range(500):
            time.sleep(0.01)
            if (tmp_path / ".lease").stat().st_mtime_ns > begin:
                return
    pytest.fail("nobody renewed the lease for 5 s")


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"n": 1})
    write_json(file, {"n": 2})
    assert json.loads(file.read_text()) == {"n": 2}
    for nth in range(1, 6):  # at each file call up to the rename
        faults = _core.testing.FaultFiles()
        faults.fail_at(nth, errno.ENOSPC)
        _core.testing.use_files(faults)
        try:
            with pytest.raises(
                SaveError, match=r"\[save\] .*a\.json: No space left on device; free space there$"
            ):
                write_json(file, {"n": 3})
        finally:
            _core.testing.use_files(None)
        assert json.loads(file.read_text()) == {"n": 2}


def test_a_kill_at_any_file_call_of_the_first_start_leaves_a_folder_that_starts(tmp_path: Path) -> None:
    for nth in range(1, 40):
        path = tmp_path / str(nth)
        store, files = RunStore(RunFolder(path)), _core.testing.FaultFiles()
        files.stop_at(nth)
        _core.testing.use_files(files)
        try:
            store.adopt(config_of())
            store.begin({"data": "x"}, {})
        except (OSError, SaveError):
            killed = True
        else:
            killed = False
        finally:
            _core.testing.use_files(None)
            store.close()
        again = RunStore(RunFolder(path))
        again.adopt(config_of())
        assert again.begin({"data": "x"}, {}) is None and again.run_id
        again.close()
        if not killed:
            return
    pytest.fail("a start makes fewer than 40 file calls")
