"""Parts of the testing build only: the release build neither links nor uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core import _core
from places import ROOT

TREE = ROOT / "build" / "run"
# A symbol of each part of cpp/testing, and of emulated levels.
PARTS = (
    "emu_avx512_bf16",
    "emu_amx_bf16",
    "FaultFiles",
    "testing::reach",
    "LateTransport",
    "RecordTransport",
)


def symbols(folder: Path) -> str:
    """Return the demangled symbols of a folder's _core."""
    (module,) = folder.glob("_core.*.so")
    return subprocess.run(["nm", "-C", str(module)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("part", PARTS)
def test_the_product_has_no_part_of_the_testing_build(part: str) -> None:
    name = f"mudd::{part}::" if part.startswith("emu") else part
    assert name in symbols(TREE / "testing")
    assert name not in symbols(TREE)


def test_the_tests_run_the_testing_build() -> None:
    assert Path(_core.__file__).parent == TREE / "testing"
    assert hasattr(_core, "testing")


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("MUDD_KILL_AT=after_commit", "MUDD_KILL_AT: only the testing build has kill points"),
        ("MUDD_KILL_AT=phase_forward:3", "MUDD_KILL_AT: only the testing build has kill points"),
        ("MUDD_EMULATE=emu_amx_bf16", "MUDD_EMULATE=emu_amx_bf16: only the testing build has emulations"),
    ],
)
def test_the_product_refuses_variables_of_the_testing_build(
    tmp_path: Path, variable: str, words: str
) -> None:
    name, value = variable.split("=")
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"} | {name: value}
    command = [sys.executable, str(ROOT / "launch.py"), "--config=tiny.py", f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()
