"""Builds of token caches: equal bytes, kills, full disks, builders that wait."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mudd_core import _core
from mudd_core.base.errors import SaveError, StopRequestedError, UserError
from mudd_core.data import TokenCache, prepare
from text_settings import SOURCES, Settings, quiet


def test_equal_text_gives_equal_bytes(cache: TokenCache, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "elsewhere")
    other = prepare(Settings(str(tmp_path / "elsewhere"), str(tmp_path / "cache")), progress=quiet)
    assert other.fingerprint == cache.fingerprint
    for name in ("tokens.h5", "tokenizer.json"):
        assert (other.path / name).read_bytes() == (cache.path / name).read_bytes()


KILLED = """
import os, signal, sys
from mudd_core.data import prepare
from mudd_core.data.cache import file as cache_file
from mudd_core.data.documents import cache_request, spool
where, n = sys.argv[3], int(sys.argv[4])
count = 0
class Settings: path, cache_dir, tokenizer, vocab_size, document = sys.argv[1], sys.argv[2], "bpe", 300, "auto"
def dying(module, name):
    old = getattr(module, name)
    def call(*args, **kwargs):
        global count
        count += 1
        if count == n: os.kill(os.getpid(), signal.SIGKILL)
        return old(*args, **kwargs)
    setattr(module, name, call)
if where:
    module, _, name = where.partition(".")
    dying({"cache_file": cache_file, "cache_request": cache_request, "spool": spool}[module], name)
prepare(Settings, progress=lambda *a: None)
"""


@pytest.mark.parametrize(
    ("where", "n", "point"),
    [
        ("cache_request.train_bpe", 1, ""),
        ("spool.framed", 1, ""),
        ("spool.framed", 2, ""),
        ("cache_request.write_h5", 1, ""),
        ("cache_file._write_array", 1, ""),
        ("cache_file._write_array", 4, ""),
        ("cache_file._write_array", 6, ""),
        ("", 0, "after_manifest_write"),
        ("", 0, "before_rename"),
        ("", 0, "after_rename"),
    ],
)
def test_a_killed_build_is_built_again_to_the_same_bytes(
    cache: TokenCache, folder: Path, tmp_path: Path, where: str, n: int, point: str
) -> None:
    env = {**os.environ, "MUDD_KILL_AT": point}
    if not point:
        del env["MUDD_KILL_AT"]
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(tmp_path), where, str(n)], env=env, check=False
    )
    assert run.returncode == -signal.SIGKILL
    left = [p for p in tmp_path.iterdir() if ".tmp-" in p.name or p.suffix == ".parts"]
    assert bool(left) == (point != "after_rename")  # the kill was during the build
    again = prepare(Settings(str(folder), str(tmp_path)), progress=quiet)
    for name in ("tokens.h5", "tokenizer.json"):
        assert (again.path / name).read_bytes() == (cache.path / name).read_bytes()
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {again.fingerprint}


def test_a_cache_that_cannot_be_written_is_a_clear_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"data\.cache_dir"):
        prepare(Settings(str(folder), str(tmp_path / "file")), progress=quiet)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mudd_core.data.documents.cache_request.write_h5", full)
    with pytest.raises(SaveError, match="No space left"):
        prepare(Settings(str(folder), str(tmp_path / "cache")), progress=quiet)
    assert [p.suffix for p in (tmp_path / "cache").iterdir()] == [".lock"]  # nothing incomplete is left


def test_a_disk_that_fills_up_in_the_hdf5_library_is_a_clear_error(folder: Path, tmp_path: Path) -> None:
    code = KILLED.replace(
        "prepare(Settings, progress=lambda *a: None)",
        """
import resource
def limited(*args, old=cache_request.write_h5):
    resource.setrlimit(resource.RLIMIT_FSIZE, (30000, resource.RLIM_INFINITY))
    return old(*args)
cache_request.write_h5 = limited
from mudd_core.base.errors import SaveError
try: prepare(Settings, progress=lambda *a: None)
except SaveError as e: assert "cannot be written" in str(e) and "File too large; " in str(e) and "\\n" not in str(e), e
else: raise SystemExit("no error")
""",
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([sys.executable, "-c", code, str(folder), str(tmp_path), "", "0"], env=env, check=True)
    assert [p.suffix for p in tmp_path.iterdir()] == [".lock"]


def test_builders_wait_for_each_other(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path), "", "0"]
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    runs = [subprocess.Popen(command, env=env) for _ in range(3)]
    assert [r.wait(120) for r in runs] == [0, 0, 0]
    assert len([p for p in tmp_path.iterdir() if p.is_dir()]) == 1


def test_a_file_system_without_locks_is_told_and_used(
    cache: TokenCache, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    told = []
    found = prepare(Settings(str(folder), str(tmp_path)), progress=lambda phase, *_: told.append(phase))
    assert found.fingerprint == cache.fingerprint
    assert any("no locks" in phase for phase in told)


def test_a_build_touches_no_other_builders_folder(folder: Path, tmp_path: Path) -> None:
    other, dead = (
        tmp_path / "0123456789abcdef.tmp-1",
        prepare(Settings(str(folder), str(tmp_path / "a"))).path.name,
    )
    other.mkdir()
    (tmp_path / f"{dead}.tmp-1").mkdir()  # left by a killed build of the same cache
    prepare(Settings(str(folder), str(tmp_path)), progress=quiet)
    assert other.is_dir() and not (tmp_path / f"{dead}.tmp-1").exists()


@pytest.mark.parametrize(
    ("phase", "left"),
    [("training the tokenizer", set()), ("encoding training text", {"tokenizer.json", "totals.json"})],
)
def test_a_stop_ends_a_build_and_leaves_what_is_complete(
    cache: TokenCache, folder: Path, tmp_path: Path, phase: str, left: set[str]
) -> None:
    def stop(now: str, done: int, total: int) -> None:
        if now == phase:
            _core.request_stop()

    try:
        with pytest.raises(StopRequestedError, match="stop requested") as caught:
            prepare(Settings(str(folder), str(tmp_path)), progress=stop)
    finally:
        _core.clear_requests()
    assert caught.value.exit_code == 75
    assert {path.name for path in tmp_path.glob("*.parts/*.json")} == left
    phases: list[str] = []
    again = prepare(Settings(str(folder), str(tmp_path)), progress=lambda phase, *_: phases.append(phase))
    assert ("training the tokenizer" in phases) == (not left)
    assert (again.file.read_bytes()) == cache.file.read_bytes()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {again.fingerprint}


@pytest.mark.parametrize("way", ["..", "link"])
def test_caches_inside_of_the_text_are_no_text_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for i in range(20):
        (text / f"{i}.txt").write_text(f"document {i} " * 100)
    (tmp_path / "link").symlink_to(text)
    monkeypatch.chdir(text)
    path = "../text" if way == ".." else str(tmp_path / "link")
    hashes = {prepare(Settings(path, "", tokenizer="bytes"), progress=quiet).fingerprint for _ in range(2)}
    assert len(hashes) == 1
    assert len(list((text / "runs" / "cache").glob("*.lock"))) == 1
