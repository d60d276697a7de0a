"""The number of modules that an override passes through on its way from the command line into the config."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import HELPERS, ROOT
from run_modules import RunModules, run_modules

# It was 36 at commit 39b479c0.
MODULES = 23


def test_an_override_passes_few_modules(tmp_path: Path) -> None:
    words = ["--config=tiny.py", "train.steps=5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HELPERS / "override_walk.py"), *words]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "train.steps = 5"
    assert int(lines[-1].split()[1]) <= MODULES, "\n".join(lines)
    assert not [line for line in lines if "cli.training" in line]


def test_code_that_a_dataclass_generates_does_not_count() -> None:
    from mudd_core.config.mesh import MeshConfig
    from mudd_core.config.values import flag

    with run_modules(["mudd_core.config"]) as found:
        MeshConfig()
        flag("x", "true")
    assert found.lines() == ["walk: mudd_core.config.values: flag", "walk: 1 modules"]


def test_the_body_of_a_class_does_not_count() -> None:
    with run_modules([__name__]) as found:

        class Body:
            value = 1

        assert Body.value == 1
    assert found.lines() == ["walk: 0 modules"]


def test_only_modules_of_the_packages_count() -> None:
    found = RunModules(["mudd_core.cli"])
    found.follow(sys._getframe(), "call", None)
    assert found.lines() == ["walk: 0 modules"]
