"""The entry points of the command line, launch.py and the modules, in different environments."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core
from mudd_core import cli
from places import ROOT

PACKAGES = str(Path(mudd_core.__file__).resolve().parents[1])


@pytest.mark.parametrize("module", ["mudd_core", "mudd_core.cli"])
def test_the_modules_are_the_command_line(module: str, tmp_path: Path) -> None:
    def called(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PACKAGES},
            capture_output=True,
            text=True,
            check=False,
        )

    done = called()
    assert done.returncode == 0 and "python3 -m mudd_core --config=tiny.py" in done.stdout
    assert called("--version").stdout == f"mudd_core {mudd_core.__version__}\n"
    assert "commands:" in called("--help").stdout
    assert called("trian").returncode == 2


def test_output_on_a_full_disk_is_74_and_hides_no_other_code(tmp_path: Path) -> None:
    def code(*words: str) -> int:
        with open("/dev/full", "wb", buffering=0) as full:
            command = [sys.executable, str(ROOT / "launch.py"), *words]
            env = {**os.environ, "PYTHONPATH": PACKAGES}
            return subprocess.run(
                command, cwd=tmp_path, env=env, stdout=full, stderr=full, timeout=120
            ).returncode

    assert code("--help") == 74
    assert code("--config=nowhere.py") == 2


def test_the_door_runs_the_checkouts_python_once(tmp_path: Path) -> None:
    shutil.copy(ROOT / "launch.py", tmp_path / "launch.py")
    bare = (sys.executable, "-I", "-S")  # a Python without mudd_core
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def door() -> subprocess.CompletedProcess[str]:
        words = [*bare, str(tmp_path / "launch.py"), "--config=small.py", "a b"]
        return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)

    done = door()
    assert done.returncode == 2 and "./run setup" in done.stderr
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s|" "$MUDD_LAUNCHED" "$@"\nexit 75\n')
    python.chmod(0o755)
    done = door()
    assert done.returncode == 75
    assert done.stdout == f"1|{tmp_path / 'launch.py'}|--config=small.py|a b|"
    python.write_text(
        f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n'
    )  # a broken .venv must not cause a loop
    done = door()
    assert done.returncode == 2 and "./run setup" in done.stderr


def test_a_current_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["report", "--workdir=runs/none"]) == 2
    assert "the current folder is gone" in capsys.readouterr().err


def test_letters_that_the_terminal_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    assert cli.main(["--help"]) == 0
    print("\u6f22\udcff", flush=True)
    assert raw.getvalue().endswith(b"??\n")


@pytest.mark.parametrize("option", ["--workdir=", "--name=", "data.path=", "--prompt="])
def test_an_argument_that_is_no_utf8_is_refused(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--config=tiny.py", option + os.fsdecode(b"caf\xe9")]) == 2
    assert "[arguments] expected UTF-8, got" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
