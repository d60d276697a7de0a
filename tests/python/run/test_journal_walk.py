"""A logged step and a sampled text of a run pass through few modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import HELPERS, ROOT
from tiny_run import CONFIG


def test_a_step_and_a_text_pass_few_modules(tiny_text: Path, tmp_path: Path) -> None:
    words = [f"--config={CONFIG}", f"--workdir={tmp_path / 'run'}", f"data.path={tiny_text}"]
    words += [f"data.cache_dir={tiny_text.parent / 'cache'}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HELPERS / "journal_walk.py"), *words]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("walk: ")]
    counts = {line.split(": ")[1]: int(line.split(": ")[2].split()[0]) for line in lines}
    # A busy machine adds the module that measures other processes.
    assert counts.keys() == {"took_step", "sampled"}, "\n".join(lines)
    assert counts["took_step"] in (10, 11) and counts["sampled"] == 8, "\n".join(lines)
