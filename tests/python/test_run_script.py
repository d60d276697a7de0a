"""The door of the house: `./run` parses, helps, and refuses before it installs anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "run"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("script", ["run", ".ci/run"])
def test_scripts_are_executable_posix_shell(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(path)], check=True)


def test_help_names_every_command() -> None:
    for done in (call(), call("help")):
        assert done.returncode == 0
        for command in ("train", "test", "lint", "stubs", "setup"):
            assert f"./run {command}" in done.stdout
    assert call("trian").returncode == 2


def test_an_incomplete_python_is_refused_by_name(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = call("setup", PYTHON=str(old))
    assert done.returncode == 2
    assert str(old) in done.stderr
    assert "installing" not in done.stdout
