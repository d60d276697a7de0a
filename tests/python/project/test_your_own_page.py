"""The commands of docs/your-own.md, run as a user types them, and the examples that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

PAGE = (ROOT / "docs" / "your-own.md").read_text()
COMMANDS = re.findall(r"^python (launch\.py .+)$", PAGE, re.MULTILINE)
FEW = ["data.tokenizer=bytes", "eval.max_batches=1"]  # so that seconds are enough


def test_every_example_is_on_the_page_and_in_a_command() -> None:
    files = {file.relative_to(ROOT).as_posix() for file in (ROOT / "examples").glob("*.py")}
    assert len(files) == 4 and files == set(re.findall(r"examples/\w+\.py", " ".join(COMMANDS)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command: str, tiny_text: Path, tmp_path: Path) -> None:
    words = shlex.split(command)
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", *FEW]
    if words[1] == "bakeoff":
        words += ["--tokens=8192", "--seeds=1", f"--out={tmp_path}/out", "model.n_layer=2"]
    else:
        words += ["train.steps=2", f"--workdir={tmp_path}/run"]
    done = subprocess.run([sys.executable, *words, *data], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = "result.html" if words[1] == "bakeoff" else "final hash"
    assert wanted in done.stdout or "--params" in words, done.stdout
