"""Fetching a run from a storage: an error or a kill at any file, then a call that succeeds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest

import fake_runs
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.run.store import remote_files
from mudd_core.run.store.fetch import finish_fetch
from mudd_core.run.store.run_folder import STAGED, UNFINISHED, RunFolder
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.saved_run import named_run

URL = "local://bucket/run"
LOCAL = Path("runs/remote/bucket/run")
# Each attempt is a fork of one process, because starting Python takes longer than a fetch.
BROKEN_OFF = """
import os, shutil, sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore

URL, LOCAL, mode = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
calls = 0

def faulty(real, at):
    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == at and mode == "kill":
            os._exit(9)
        if calls == at:
            raise OSError(5, "broken off")
        return real(*arguments, **named)
    return call

def attempt(at):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.stdout = open(os.devnull, "w")
    for holder, name in ((LocalFileSystem, "get_file"), (os, "replace"), (Path, "rename")):
        setattr(holder, name, faulty(getattr(holder, name), at))
    code = 0
    try:
        RunStore(RunFolder(LOCAL, URL)).close()
    except Exception as error:
        code = getattr(error, "exit_code", 70)
    os._exit(code)

def tree():
    return {str(file): file.read_bytes() for file in sorted(LOCAL.rglob("*")) if file.name != ".lock"
            and not file.is_dir()} | {str(folder): b"" for folder in LOCAL.rglob("*") if folder.is_dir()}

assert attempt(0) == 0
whole, codes = tree(), []
while not codes or codes[-1]:
    shutil.rmtree("runs")
    codes.append(attempt(len(codes) + 1))
    assert attempt(0) == 0, codes
    assert tree() == whole, codes
print(*codes)
"""


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a stopped run that only the storage has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bucket").mkdir()
    with fake_runs.make(URL, None, "train.stop_at=7") as trainer:  # type: ignore[arg-type]
        trainer.fit()
    shutil.rmtree("runs")
    return tmp_path / "bucket" / "run"


@pytest.mark.parametrize(("mode", "expected"), [("error", {2, 74}), ("kill", {9})])
def test_a_fetch_that_is_broken_off_at_any_file_is_completed_by_the_next_call(
    remote: Path, mode: str, expected: set[int]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF, URL, str(LOCAL), mode],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    codes = [int(code) for code in done.stdout.split()]
    files = [file for file in remote.rglob("*") if file.is_file() and "tensorboard" not in file.parts]
    assert (
        len(codes) > len(files) + 5
    )  # each file, the moves into place, and the last attempt without a fault
    assert set(codes[:-1]) == expected and codes[-1] == 0


def test_newer_steps_arrive_with_their_logs_or_not_at_all(
    remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the older local copy does not change while a fetch of newer steps fails."""
    RunStore(RunFolder(LOCAL, URL)).close()
    shutil.copytree(LOCAL, "older")
    with fake_runs.make(URL, None, "train.stop_at=12") as trainer:  # type: ignore[arg-type]
        trainer.fit()
    newer = {file.name: file.read_bytes() for file in LOCAL.glob("*.json*")}
    shutil.rmtree(LOCAL)
    shutil.move("older", LOCAL)
    before = {file: file.read_bytes() for file in LOCAL.rglob("*") if file.is_file()}
    files = type(fsspec.filesystem("local"))
    real = files.get_file

    def fails_for_logs(self: Any, path: str, *rest: Any, **named: Any) -> Any:
        if path.endswith("metrics.jsonl"):
            raise OSError("broken off")
        return real(self, path, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(files, "get_file", fails_for_logs)
        with pytest.raises(UserError, match="cannot be reached: broken off"):
            RunStore(RunFolder(LOCAL, URL))
    assert {file: file.read_bytes() for file in LOCAL.rglob("*") if file.is_file()} == before
    RunStore(RunFolder(LOCAL, URL)).close()
    assert {file.name: file.read_bytes() for file in LOCAL.glob("*.json*")} == newer


def test_a_command_that_reads_a_run_completes_a_fetch(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("mudd_core.run.store.fetch.finish_fetch", lambda folder: None)
        RunStore(RunFolder(LOCAL, URL)).close()
    assert (LOCAL / STAGED).is_dir() and not (LOCAL / "config.json").exists()
    config, folder = named_run({"--workdir": str(LOCAL)}, [])
    assert (config.name, folder.path) == ("tiny", LOCAL) and not (LOCAL / STAGED).exists()
    assert (LOCAL / "checkpoints" / "step-7" / "manifest.json").is_file()


def test_a_damaged_identity_in_the_storage_is_named_and_nothing_is_kept(remote: Path) -> None:
    (remote / "run.json").write_text("[]")
    with pytest.raises(FormatError, match=r"local://bucket/run/run\.json at byte 0: expected a JSON object"):
        RunStore(RunFolder(LOCAL, URL))
    assert not LOCAL.exists()


def test_a_damaged_config_in_the_storage_is_named_and_nothing_is_kept(remote: Path) -> None:
    (remote / "config.json").write_text("[]")
    with pytest.raises(
        FormatError, match=r"local://bucket/run/config\.json at byte 0: expected a JSON object"
    ):
        RunStore(RunFolder(LOCAL, URL))
    assert not (LOCAL / "config.json").exists() and not (LOCAL / STAGED).exists()


def test_what_a_killed_fetch_left_is_removed_by_a_command_that_reads_the_folder(remote: Path) -> None:
    (LOCAL / UNFINISHED).mkdir(parents=True)
    finish_fetch(RunFolder(LOCAL))
    assert not list(LOCAL.iterdir())


def test_every_fetched_file_is_synced_before_the_commit(
    remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = set[str](), os.fsync

    def fsync(file: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    RunStore(RunFolder(LOCAL, URL)).close()
    step = LOCAL / "checkpoints" / "step-7"
    assert {"config.json", "run.json", *(file.name for file in step.iterdir())} <= synced


def test_a_probe_of_a_killed_start_is_no_foreign_file(remote: Path) -> None:
    shutil.rmtree(remote)
    remote.mkdir()
    (remote / ".probe-1234").touch()
    RunStore(RunFolder(LOCAL, URL)).close()


def test_an_upload_that_hangs_is_a_failed_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(remote_files, "LIMIT_SECONDS", 0.3)
    files, released = type(fsspec.filesystem("local")), threading.Event()
    real = files.put_file

    def hangs(self: Any, file: str, *rest: Any, **named: Any) -> Any:
        if file.endswith("manifest.json") or "step-5" in file:
            released.wait(20)
        return real(self, file, *rest, **named)

    monkeypatch.setattr(files, "put_file", hangs)
    begin = time.monotonic()
    try:
        with (
            fake_runs.make(URL) as trainer,  # type: ignore[arg-type]
            pytest.raises(SaveError, match="an earlier call has not returned yet"),
        ):
            trainer.fit()
        assert time.monotonic() - begin < 10  # one limit for all saves, not the storage's 20 s
        assert "no answer within 0 s; the step is whole in" in capsys.readouterr().err
        assert len(list((LOCAL / "checkpoints").iterdir())) == 3
    finally:
        released.set()
    time.sleep(0.1)  # the late call returns, and uploads work again
    with fake_runs.make(URL) as trainer:  # type: ignore[arg-type]
        trainer.fit()
    assert (tmp_path / "bucket" / "run" / "checkpoints" / "step-20" / "manifest.json").is_file()
