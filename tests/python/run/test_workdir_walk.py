"""The path of a work directory becomes a RunFolder once; after that the RunFolder is passed, not the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import HELPERS, ROOT
from tiny_run import CONFIG
from workdir_walk import Walk


def test_the_path_of_a_work_directory_passes_few_hands_and_none_twice(
    tiny_text: Path, tmp_path: Path
) -> None:
    words = [f"--config={CONFIG}", f"--workdir={tmp_path / 'run'}", "train.steps=4", "train.save_every=2"]
    words += [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HELPERS / "workdir_walk.py"), *words]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("walk: ")]
    assert "walk: cli.request -> run.store.run_folder: RunFolder.named(name)" in lines
    assert "resumes at step 2" in result.stdout
    assert lines[-1] == "walk: 10 modules, 0 returns", "\n".join(lines)


def test_a_walk_counts_modules_and_returns(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    for giver, taker in (("a", "b"), ("b", "c"), ("c", "b"), ("b", "c"), ("b", "b")):
        walk.hand(f"mudd_core.run.{giver}", f"mudd_core.run.{taker}", "")
    walk.hand("mudd_core.run.a", "mudd_core.checkpoint.save", "")
    assert walk.modules() == ["mudd_core.run.a", "mudd_core.run.b", "mudd_core.run.c"]
    assert walk.returns() == [("mudd_core.run.c", "mudd_core.run.b")]
