"""Links, FIFOs, sockets and devices in place of files: an error names them at once; nothing elsewhere is changed."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_runs import make
from mudd_core import _core, checkpoint
from mudd_core.base import regular_files
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.config import load_config
from mudd_core.data import TokenCache, open_cache, prepare
from mudd_core.run.report import trace
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.metrics import read_rows
from mudd_core.run.store.run_folder import RunFolder
from text_settings import Settings, quiet

FILES = [".lock", ".lease", "config.json", "run.json", "metrics.jsonl", "events.jsonl", "summary.json"]
FILES += ["log.txt", "remote.json", "mlperf_compliance.log"]
FOLDERS = ["checkpoints", "tensorboard", ".fetch"]


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere" / ("file" if path.name in FILES else "folder"))


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def listen(path: Path) -> None:
    """Create a socket. Its path may be longer than the system allows; its name may not."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


KINDS: dict[str, Callable[[Path], None]] = {
    "a link": link,
    "a circle": loop,
    "a FIFO": lambda path: os.mkfifo(path),
    "a socket": listen,
}
# Opening a FIFO for reading must not wait for a writer, because the kernel would wait without limit.


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work directory of a stopped run that can continue."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    with make(path, None, "train.stop_at=10") as trainer:
        trainer.fit()
    return path


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "elsewhere" / "file").write_text("precious")
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def swap(path: Path, kind: str) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    KINDS[kind](path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_run_refuses_what_is_not_its_file(run: Path, name: str, kind: str) -> None:
    swap(run / name, kind)
    told = "a link" if kind == "a circle" else kind
    wanted = "a folder" if name in FOLDERS else "a regular file"
    with pytest.raises(UserError, match=rf"{name}: expected {wanted}, got {told}; move it away"):
        make(run)
    assert (run.parent / "elsewhere" / "file").read_text() == "precious"
    assert list((run.parent / "elsewhere" / "folder").iterdir()) == []


@pytest.mark.parametrize("name", FILES)
def test_a_run_refuses_a_file_with_another_name_elsewhere(run: Path, name: str) -> None:
    """A write to a hard link would change the file of the other name."""
    (run / name).unlink(missing_ok=True)
    (run / name).hardlink_to(run.parent / "elsewhere" / "file")
    with pytest.raises(
        UserError, match=rf"{name}: expected a regular file, got one with 2 hard links; move it"
    ):
        make(run)
    with pytest.raises(OSError, match="expected a regular file, got one with 2 hard links"):
        regular_files.open_to_append(run / name)
    assert regular_files.read_text(run / name, links=False) == "precious"


def test_a_trace_is_not_written_through_a_link(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "plugins").mkdir()
    link(run / "plugins" / "profile")
    with pytest.raises(UserError, match="plugins/profile: expected a folder, got a link"):
        make(run)
    (run / "plugins" / "profile").unlink()
    said: list[str] = []
    window = trace.Trace("0:2", RunFolder(run), None, said.append)
    (run / "plugins").rmdir()
    (run / "plugins").symlink_to(run.parent / "elsewhere" / "folder")  # after the check
    window._open()
    assert "expected a folder, got a link; there is no trace" in said[0]
    assert not any((run.parent / "elsewhere" / "folder").iterdir())


def test_folders_and_files_in_each_others_place_are_refused(run: Path) -> None:
    for name in FILES:
        shutil.copytree(run, run.parent / name, symlinks=True)
        (run.parent / name / name).unlink(missing_ok=True)
        (run.parent / name / name).mkdir()
        with pytest.raises(UserError, match=f"{name}: expected a regular file, got a folder"):
            make(run.parent / name)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("x")
    with pytest.raises(UserError, match="checkpoints: expected a folder, got a regular file"):
        make(run)
    with pytest.raises(UserError, match=r"expected a folder that can be read.*Not a directory"):
        checkpoint.load_newest(run / "checkpoints")
    loop(run / "circle")
    with pytest.raises(UserError, match="Too many levels of symbolic links"):
        checkpoint.load_newest(run / "circle")


def test_the_work_directory_itself_may_be_a_link(run: Path) -> None:
    (run.parent / "name").symlink_to(run)
    with make(run.parent / "name") as trainer:
        assert trainer.step_done == 10


def test_a_link_that_appears_while_a_run_starts_is_not_followed(run: Path) -> None:
    """The check at the start cannot see this link, so each opening must refuse it."""
    target = run.parent / "elsewhere" / "file"
    for name in (".lock", "metrics.jsonl", "events.jsonl"):
        swap(run / name, "a link")
        with pytest.raises(OSError, match="expected a regular file, got a link") as caught:
            regular_files.open_to_append(run / name)
        assert caught.value.errno == errno.ELOOP
    assert target.read_text() == "precious"
    with pytest.raises(UserError, match="expected a regular file, got a link"):
        list(read_rows(run / "metrics.jsonl"))


@pytest.mark.filterwarnings("ignore:.*only its weights are read")
@pytest.mark.parametrize("kind", ["a FIFO", "a socket"])
def test_readers_do_not_wait(run: Path, tmp_path: Path, cache: TokenCache, kind: str) -> None:
    strange = tmp_path / "strange.json"
    swap(strange, kind)
    refusal = rf"expected a regular file, got {kind}"
    for read in (regular_files.read_bytes, regular_files.read_text, regular_files.open_to_append):
        with pytest.raises(OSError, match=refusal):
            read(strange)
    with pytest.raises(OSError, match="expected a regular file, got a"):
        _core.read_file(str(strange), 100)
    swap(run / "config.json", kind)
    with pytest.raises(UserError):
        read_saved_config(RunFolder(run))
    with pytest.raises(UserError):
        load_config(str(strange))
    with pytest.raises(UserError, match="expected a regular file, got a"):
        checkpoint.load_weights(strange)
    with pytest.raises(UserError, match=refusal):
        prepare(Settings(str(run), str(tmp_path / "cache"), str(strange)), progress=quiet)
    copy = Path(shutil.copytree(cache.path, tmp_path / cache.fingerprint))
    for name in ("tokenizer.json", "tokens.h5"):
        swap(copy / name, kind)
        with pytest.raises(FormatError, match=refusal):
            open_cache(copy)


def test_a_device_is_no_file() -> None:
    with pytest.raises(OSError, match="expected a regular file, got a device"):
        _core.read_file("/dev/zero", 1 << 20)
    with pytest.raises(OSError, match="expected a regular file, got a device"):
        regular_files.read_bytes("/dev/zero")


@pytest.mark.parametrize("kind", ["a FIFO", "a socket"])
def test_a_shard_that_is_no_file_is_passed_over(run: Path, kind: str) -> None:
    shard = next((run / "checkpoints" / "step-10").glob("model-*.safetensors"))
    swap(shard, kind)
    found = checkpoint.load_newest(run / "checkpoints")
    assert found is not None and found.step == 5
    assert "expected a regular file" in found.passed_over[0].reason
    with pytest.raises(FormatError, match="expected a regular file"):
        checkpoint.load_step(run / "checkpoints", 10)


def test_a_step_that_is_a_link_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / "step-10").rename(run.parent / "step-10")
    (run / "checkpoints" / "step-10").symlink_to(run.parent / "step-10")
    found = checkpoint.load_newest(run / "checkpoints")
    assert found is not None and found.step == 5
    assert str(found.passed_over[0]).endswith("step-10: it is a link, expected a folder")
    shutil.rmtree(run / "checkpoints" / "step-5")
    with pytest.raises(FormatError, match=r"no checkpoint verifies.*it is a link"):
        make(run)  # not a run from the start


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_the_tools_do_not_write_through_links(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("precious")
    (tmp_path / "out").mkdir()
    KINDS[kind](tmp_path / "out" / "summary.json")
    told = "a link" if kind == "a circle" else kind
    with pytest.raises(UserError, match=f"expected a regular file or nothing, got {told}"):
        regular_files.write_text(tmp_path / "out" / "summary.json", "x")
    assert (tmp_path / "elsewhere" / "file").read_text() == "precious"
    regular_files.write_text(tmp_path / "out" / "fine", "x")
    with pytest.raises(SaveError, match=r"\[save\]"):
        regular_files.write_text(tmp_path / "nowhere" / "file", "x")


def test_a_folder_named_stop_is_named_and_stops_a_run(run: Path) -> None:
    with make(run) as trainer:
        (run / "STOP").mkdir()
        summary = trainer.fit()
    assert (summary.stopped, summary.step) == ("STOP file", 10)
    with pytest.raises(UserError, match=r"STOP: expected a file or nothing, got a folder; remove it"):
        make(run)


def test_an_error_of_the_disk_in_releasing_the_lock_is_a_failed_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = FolderLock(RunFolder(tmp_path / "run"))
    closed = []
    real = os.close

    def broken(file: int) -> None:
        real(file)
        closed.append(file)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "close", broken)
    with pytest.raises(SaveError, match=r"\.lock: Input/output error") as caught:
        held.close()
    monkeypatch.undo()
    assert caught.value.exit_code == 74 and len(closed) == 1
    FolderLock(RunFolder(tmp_path / "run")).close()  # it was released in spite of the error
