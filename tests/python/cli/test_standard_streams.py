"""Standard output that cannot be written, and arguments and output in a locale without UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core import checkpoint, cli
from tiny_run import CONFIG, ROOT

FULL = "standard output cannot be written: No space left on device"


def launched(
    words: list[str], folder: Path, stdout: int | None = None, **environment: str
) -> tuple[int, bytes, str]:
    """Return the exit code, standard output and standard error of launch.py in a fresh process."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    return done.returncode, done.stdout or b"", done.stderr.decode()


@pytest.fixture
def words(tmp_path: Path, tiny_text: Path) -> list[str]:
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}")
    return ["train", f"--config={CONFIG}", f"--workdir={tmp_path / 'run'}", *data, "train.steps=4"]


def test_full_standard_output_stops_a_run_that_the_same_command_completes(
    tmp_path: Path, words: list[str]
) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        code, _, error = launched(words, tmp_path, full.fileno())
        of_help = launched(["--help"], tmp_path, full.fileno())
    assert of_help[0] == 74
    assert of_help[2] == f"error: [output] {FULL}; free space there or redirect the output to another file\n"
    assert code == 74
    assert error.count("error:") == 1 and FULL in error
    assert "Traceback" not in error
    assert cli.main(words) == 0
    checkpoint.verify_step(tmp_path / "run" / "checkpoints" / "step-4")


def test_output_that_fails_in_the_middle_is_saved_first(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class FullAfterTwoSteps:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            if "step 2/" in self.text:
                raise OSError(28, os.strerror(28))

        def isatty(self) -> bool:
            return False

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", FullAfterTwoSteps())
        patch.setattr(cli.entry, "flushed", lambda code: code)
        assert cli.main([*words, "train.log_every=1"]) == 74
    assert f"{FULL}; free space" in (error := capsys.readouterr().err) and "log.txt has all of it" in error
    assert "stopped by standard output that cannot be written" in (tmp_path / "run" / "log.txt").read_text()
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == [2]
    assert cli.main([*words, "train.log_every=1"]) == 0


def test_a_reader_that_leaves_stops_nothing(tmp_path: Path, words: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    code, _, error = launched(words, tmp_path, theirs)
    os.close(theirs)
    assert code == 0 and "error" not in error and "Errno" not in error
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoints") == [4]


def test_japanese_arguments_and_text_need_no_utf8_locale(tmp_path: Path, words: list[str]) -> None:
    text = tmp_path / "物語.txt"
    text.write_text("吾輩は猫である。名前はまだ無い。\n" * 400)
    run = [
        "train",
        f"--config={CONFIG}",
        f"data.path={text}",
        "data.tokenizer=bytes",
        "train.steps=1",
        f"data.cache_dir={tmp_path / 'cache'}",
        f"--workdir={tmp_path / '走る'}",
    ]
    plain = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": ""}
    code, out, error = launched(run, tmp_path, **plain)
    assert code == 0, error
    assert str(tmp_path / "走る") in out.decode()
    assert str(tmp_path / "走る") in (tmp_path / "走る" / "log.txt").read_text()
    sample = ["sample", f"--workdir={tmp_path / '走る'}", "--max-tokens=2", "--prompt", "吾輩は"]
    code, out, error = launched(sample, tmp_path, **plain)
    assert code == 0 and out.decode(errors="replace").startswith("吾輩は"), error
    code, out, error = launched(["data", "show", *run[1:5]], tmp_path, **plain)
    assert code == 0 and "猫" in out.decode(), error
