"""Logs that cannot be written at the end of a run: exit code 74, one message, and intact checkpoints."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core import checkpoint
from mudd_core.base import framing, regular_files
from mudd_core.base.errors import UserError
from mudd_core.cli import main, standard_streams
from mudd_core.run.store import log_files, metrics_file
from mudd_core.run.store.metrics_file import require_metrics_file
from tiny_run import CONFIG


class Refusing(io.FileIO):
    """A file on a disk that reports an error: in writes after some moment, or when the file is closed."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(regular_files.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
        self.fault = fault

    def write(self, data: Any) -> int:
        if self.fault == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data) or 0

    def close(self) -> None:
        was_open = not self.closed
        super().close()
        if self.fault == "close" and was_open:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def words(tmp_path: Path, tiny_text: Path) -> list[str]:
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}")
    return ["train", f"--config={CONFIG}", f"--workdir={tmp_path / 'run'}", *data, "train.steps=2"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("log.txt", "close"),
        ("metrics.jsonl", "close"),
        ("metrics.jsonl", "full"),
        ("events.jsonl", "close"),
        ("events.jsonl", "full"),
        ("tensorboard", "close"),
        ("tensorboard", "full"),
        ("second.jsonl", "close"),
    ],
)
def test_a_log_that_is_not_written_to_its_end_is_74_and_the_checkpoint_is_whole(
    name: str,
    fault: str,
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = regular_files.open_to_append
    words = [*words, f"log.metrics_file={tmp_path / name}"] if name == "second.jsonl" else words

    def opened(path: Path, *, buffering: int = -1) -> Any:
        if name not in (path.name, path.parent.name):
            return real(path, buffering=buffering)
        raw = Refusing(path, fault)
        return raw if buffering == 0 else io.BufferedWriter(raw)

    with monkeypatch.context() as patch:
        for module in (standard_streams, log_files, framing):
            patch.setattr(module, "open_to_append", opened)
        assert main(words) == 74
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    reason = "Input/output error" if fault == "close" else "No space left on device"
    assert len(errors) == 1 and name in errors[0] and reason in errors[0]
    steps = checkpoint.list_steps(tmp_path / "run" / "checkpoints")
    if fault == "full" and name != "events.jsonl":  # no step is committed before its log entries
        assert steps == []
    else:
        assert steps == [2]
        checkpoint.verify_step(tmp_path / "run" / "checkpoints" / "step-2")
    assert main(words) == 0


@pytest.mark.parametrize("kind", ["a folder", "a missing folder", "a link", "a hard link", "no permission"])
def test_a_metrics_file_that_cannot_be_written_is_refused_before_the_folder_is_made(
    kind: str,
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "more.jsonl"
    (tmp_path / "precious").write_text("{")
    if kind == "a folder":
        path.mkdir()
    elif kind == "a missing folder":
        path = tmp_path / "no" / "where"
    elif kind == "a link":
        path.symlink_to(tmp_path / "precious")
    elif kind == "a hard link":
        path.hardlink_to(tmp_path / "precious")
    else:

        def denied(path: Path, *, buffering: int = -1) -> Any:  # tests may run as root
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        monkeypatch.setattr(metrics_file, "open_to_append", denied)
    assert main([*words, f"log.metrics_file={path}"]) == 74
    error = capsys.readouterr().err
    assert f"[log] metrics_file: cannot write {path}: " in error and "name another file" in error
    assert not (tmp_path / "run").exists() and (tmp_path / "precious").read_text() == "{"


def test_a_metrics_file_may_be_in_the_folder_that_the_run_makes(tmp_path: Path, words: list[str]) -> None:
    more = tmp_path / "run" / "more.jsonl"
    assert main([*words, f"log.metrics_file={more}"]) == 0
    assert more.read_bytes() == (tmp_path / "run" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("foreign", ['{"a": 1}\n', '{"a": 1, "step": 3}\n', '{"st', "text", "[1]\n"])
def test_a_foreign_file_is_not_emptied_by_a_copy_of_the_metrics(foreign: str, tmp_path: Path) -> None:
    """Check that a copy of metrics.jsonl is truncated by step only, and not if an object has no step."""
    file = tmp_path / "mine.json"
    file.write_text(foreign)
    config = mc.load_config("tiny.py", {"log.metrics_file": str(file)})
    if '{"step": '.startswith(foreign):  # an incomplete entry
        require_metrics_file(config)
        return
    with pytest.raises(UserError, match="expected a new file or a file of metrics"):
        require_metrics_file(config)
    assert file.read_text() == foreign
