"""Effects of terminals and shells on the program: closed streams, control characters, missing programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core
from mudd_core.cli import ending
from places import ROOT

PACKAGES = str(Path(mudd_core.__file__).resolve().parents[1])


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f'"$1" "$2" {line}'
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, str(ROOT / "launch.py")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str, tmp_path: Path) -> None:
    done = shell(f"--plan --config=tiny.py {closed}", tmp_path)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    done = shell(f"--config=nowhere.py {closed}", tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_file_never_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = (
        "import os; from mudd_core.cli import main; main(['--version']);"
        "held = os.open('held', os.O_CREAT | os.O_RDWR); os.write(1, b'printed'); os.write(2, b'printed');"
        "raise SystemExit(held)"
    )
    done = subprocess.run(
        ["sh", "-c", '"$1" -c "$2" <&- >&- 2>&-', "sh", sys.executable, code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        check=False,
    )
    assert done.returncode > 2 and (tmp_path / "held").read_bytes() == b""


def test_control_characters_of_samples_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    ending.write_now("a\tb\n\x1b[31m\x00\r\x7f\x9b\u00e9")
    assert capsys.readouterr().out == "a\tb\n\\x1b[31m\\x00\\x0d\\x7f\\x9b\u00e9"
